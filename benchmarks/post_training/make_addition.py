"""Write `data/addition/`: sums of two numbers of two digits, solved, and as pairs of a right and a wrong answer.

    python benchmarks/post_training/make_addition.py

A wrong answer has one digit changed, so both sides of a pair have equal length and equal form. The prompts of the held-out
pairs are in no other file.
"""

import gzip
import json
import random
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "data" / "addition"
HELD_OUT, SEED = 1_600, 11


def wrong(answer: str, source: random.Random) -> str:
    """The answer with one digit changed; the first digit stays above zero."""
    place = source.randrange(len(answer))
    others = [digit for digit in "0123456789" if digit != answer[place] and (place > 0 or digit != "0")]
    return answer[:place] + source.choice(others) + answer[place + 1 :]


def write(name: str, rows: Iterable[dict]) -> None:
    """Write rows as JSON lines, compressed without a time, so that the bytes are a function of the rows."""
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    (FOLDER / f"{name}.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def main() -> None:
    source = random.Random(SEED)
    sums = [(a, b) for a in range(10, 100) for b in range(10, 100)]
    source.shuffle(sums)
    pairs = [
        {"id": f"{a}+{b}", "prompt": f"{a}+{b}=", "chosen": str(a + b), "rejected": wrong(str(a + b), source)} for a, b in sums
    ]
    held_out, train = pairs[:HELD_OUT], pairs[HELD_OUT:]
    roles = ("user", "prompt"), ("assistant", "chosen")
    solved = [{"id": row["id"], "messages": [{"role": role, "content": row[key]} for role, key in roles]} for row in train]
    FOLDER.mkdir(parents=True, exist_ok=True)
    write("solved", solved)
    write("pairs", train)
    write("pairs_heldout", held_out)


if __name__ == "__main__":
    main()
