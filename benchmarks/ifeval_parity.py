"""Verdicts of lm-eval's IFEval checkers on the cases of `tests/evals/ifeval_cases.py`, written beside them.

    PYTHONPATH=tests/evals PEER/bin/python -P benchmarks/ifeval_parity.py tests/evals/ifeval_verdicts.json

PEER is an environment with lm-eval 0.4.13, langdetect, immutabledict and nltk. `word_tokenize` runs without its sentence model
(Punkt), which NLTK would download. The checkers of languages and of sentences are left out. Strict and loose.
"""

import json
import sys
from pathlib import Path

import nltk
from ifeval_cases import instructions, texts

nltk.download = lambda *_, **__: True
nltk.data.find = lambda *_, **__: True
nltk.word_tokenize = nltk.tokenize.NLTKWordTokenizer().tokenize

from lm_eval.tasks.ifeval import utils  # noqa: E402


def main() -> None:
    rows = []
    for name, given in instructions():
        item = utils.InputExample(0, [name], "Tell me of rivers", [given])
        judges = (utils.test_instruction_following_strict, utils.test_instruction_following_loose)
        bits = ["".join("01"[judge(item, text).follow_all_instructions] for text in texts()) for judge in judges]
        rows.append(json.dumps([name, given, *bits]))
    Path(sys.argv[1]).write_text("[\n" + ",\n".join(rows) + "\n]\n")


if __name__ == "__main__":
    main()
