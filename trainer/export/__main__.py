"""`python -m trainer.export job.json`: run the stage `trainer.hf_model` as a job of its own, for example in a pod."""

import logging
import sys
from pathlib import Path

from lineage.artifact.store import Artifact
from lineage.config import from_jsonable
from lineage.jobs.job import read_job
from trainer.hf.export import HF_MODEL, HfExportConfig, export_hf


def main(arguments: list[str]) -> None:
    """Run the job of a job file: export a checkpoint in Hugging Face's format."""
    if len(arguments) != 1:
        raise SystemExit("usage: python -m trainer.export job.json (lineage/jobs/job.py says what a job file holds)")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S")
    job = read_job(Path(arguments[0]))
    if job.spec.stage != HF_MODEL.name:
        raise SystemExit(f"{arguments[0]} is a job of {job.spec.stage}; this runs {HF_MODEL.name}")
    checkpoint, tokenizer = job.inputs["checkpoint"], job.inputs["tokenizer"]
    assert isinstance(checkpoint, Artifact) and isinstance(tokenizer, Artifact)  # each input of the stage is one artifact
    with job.writing(job.spec) as out:
        export_hf(out, from_jsonable(HfExportConfig, job.spec.config), checkpoint, tokenizer)


if __name__ == "__main__":
    main(sys.argv[1:])
