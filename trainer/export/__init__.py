"""Export a checkpoint for other programs: `python -m trainer.export job.json`."""
