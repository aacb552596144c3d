"""Six YAML tasks of lm-eval, run by lm-eval itself and by our adapter (`evals/items/tasks/lm_eval_yaml.py`) on the same small
model.

    PYTHONPATH=.:tests/evals .venv/bin/python benchmarks/lm_eval_yaml.py --peer PEER/bin/python [--record]

PEER is a separate environment: `pip install lm_eval==0.4.13`. Nothing is downloaded: the documents are made from
`data/eval_items/`, and the model is the byte model of `tests/evals/lm_eval_cases.py`. Prints every score of both and
exits with 1 unless they are equal. `--record` writes lm-eval's scores to `tests/evals/lm_eval_scores.json`, to which a
test holds ours.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from lm_eval_cases import write_documents
from lm_eval_ours import our_scores

TESTS = Path(__file__).parents[1] / "tests/evals"
PEER = Path(__file__).with_name("lm_eval_yaml_peer.py")
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="Python of an environment with lm-eval")
    parser.add_argument("--record", action="store_true", help="write lm-eval's scores for the test")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lm-eval-yaml-") as scratch:
        folder, out = Path(scratch), Path(scratch) / "scores.json"
        write_documents(folder)
        environment = {**os.environ, **OFFLINE, "HF_HOME": scratch, "PYTHONPATH": str(TESTS)}
        subprocess.run([options.peer, str(PEER), str(folder), str(out)], env=environment, check=True)
        theirs = json.loads(out.read_text())
        equal = [_compare(task, scores, our_scores(task, folder)) for task, scores in theirs.items()]
    if options.record:
        (TESTS / "lm_eval_scores.json").write_text(json.dumps(theirs, indent=1) + "\n")
    sys.exit(0 if all(equal) else 1)


def _compare(task: str, theirs: dict[str, float], ours: dict[str, float]) -> bool:
    for metric, value in sorted(theirs.items()):
        verdict = "equal" if ours[metric] == value else "DIFFERENT"
        print(f"| {task} | {metric} | {value!r} | {ours[metric]!r} | {verdict} |", flush=True)
    return all(ours[metric] == value for metric, value in theirs.items())


if __name__ == "__main__":
    main()
