"""A job that does what its file says, for tests of launchers: `python -m quick_job job.json...`.

The file: `{"steps": [{"print": "text"}, {"sleep": 0.5}, {"wait_for": "path"}, {"touch": "path"}, {"exit": 3}]}`, or a list of
such lists under `attempts`, of which the n-th attempt does the n-th (counted by files beside `counter`). Environment variables
in what is printed are filled in; an exit with a `rank` is that process's alone; `{"join": true}` meets the gang as training
does.
"""

import json
import os
import sys
import time
from pathlib import Path

from lineage.jobs.given_jobs import run_each


def main(job: Path) -> None:
    record = json.loads(job.read_text())
    steps = record.get("steps", [])
    if "attempts" in record:
        counter = Path(record["counter"])
        counter.mkdir(parents=True, exist_ok=True)
        number = len(list(counter.iterdir()))
        (counter / str(number)).touch()
        steps = record["attempts"][min(number, len(record["attempts"]) - 1)]
    for step in steps:
        do(step)


def do(step: dict) -> None:
    if "print" in step:
        print(os.path.expandvars(step["print"]), flush=True)
    if "join" in step:
        meet()
    if "sleep" in step:
        time.sleep(step["sleep"])
    if "touch" in step:
        Path(step["touch"]).touch()
    while "wait_for" in step and not Path(step["wait_for"]).exists():
        time.sleep(0.05)
    if "exit" in step and step.get("rank", "") in ("", os.environ.get("MARIN_PROCESS_INDEX")):
        sys.exit(step["exit"])


def meet() -> None:
    from trainer.processes import NotMetError, join
    from trainer.signals import Stop

    stop = Stop()
    stop.listen()
    try:
        join(os.environ, stop)
    except NotMetError as error:
        print(error, flush=True)
        os._exit(error.code)


if __name__ == "__main__":
    run_each(sys.argv[1:], main)
