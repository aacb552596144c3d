"""A job that commits the word of its config, for tests of job lists: `python -m listed_job FILE...`.

Words that are more than words: `fail` raises, `nothing` commits nothing, `die-N` kills the process in its first N attempts.
"""

import os
import sys
from pathlib import Path

from lineage.jobs.given_jobs import run_each
from lineage.jobs.job import read_job
from lineage.jobs.job_list import job_files


def main(file: Path) -> None:
    job = read_job(file)
    word = job.spec.config["word"]
    print(f"{word} starts", flush=True)
    if job.is_made():
        print(f"{word} is there already", flush=True)
        return
    if word == "fail":
        raise ValueError("this job fails")
    if word.startswith("die-"):
        attempts = Path(job.store.root, "attempts")
        with attempts.open("a") as stream:
            stream.write("x")
        if attempts.stat().st_size <= int(word.removeprefix("die-")):
            os._exit(9)
    if word == "nothing":
        return
    with job.writing(job.spec) as out:
        (out.folder / "word.txt").write_text(word)


if __name__ == "__main__":
    with job_files(sys.argv[1:]) as files:
        run_each(files, main)
