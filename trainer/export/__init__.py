"""A checkpoint as other programs open it: `python -m trainer.export job.json`."""
