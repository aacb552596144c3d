"""Write `data/addition/`: sums of two numbers of two digits, solved, and as pairs of a right and a wrong answer.

    python benchmarks/post_training/make_addition.py

Answers have three digits. The wrong answer to a sum is the right answer to another sum, its partner, and differs from the
right one in one digit; the partner's wrong answer is the first one's right answer. So both sides of a pair have equal length,
and every text is as often right as wrong. A scorer that reads the answers alone is right in half of the pairs. The prompts
of the held-out pairs are in no other file, and partners are in the same file.

`controls` has the prompts of the training pairs, each with one answer in four forms: `shorter` is the answer, `longer` goes on
with two full stops, `round` and `square` put it in brackets. Of partners, which have the same answer there, it is right for one
and wrong for the other, so pairs of two forms say nothing of right and wrong.
"""

import gzip
import json
import random
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "data" / "addition"
HELD_OUT, SEED = 1_600, 11


def answer(a: int, b: int) -> str:
    return f"{a + b:03d}"


def near(text: str) -> list[str]:
    """Return the texts that differ from one in one digit."""
    return [text[:i] + digit + text[i + 1 :] for i in range(len(text)) for digit in "0123456789" if digit != text[i]]


def partners(sums: list[tuple[int, int]], source: random.Random) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Match sums in the given order, each with a random one whose answer is near and that has no partner yet."""
    left: dict[str, list[tuple[int, int]]] = {}
    for one in sums:
        left.setdefault(answer(*one), []).append(one)
    matched = []
    for one in sums:
        here = left[answer(*one)]
        if one not in here:
            continue
        here.remove(one)
        free = [each for text in near(answer(*one)) for each in left.get(text, [])]
        if not free:
            continue  # it stays out of the pairs
        other = source.choice(free)
        left[answer(*other)].remove(other)
        matched.append((one, other))
    return matched


def controls(pairs: list[dict]) -> Iterable[dict]:
    """Yield each prompt with one answer in four forms: right for the first of partners, wrong for the second."""
    for place, row in enumerate(pairs):
        text = row["rejected" if place % 2 else "chosen"]
        forms = {"shorter": text, "longer": f"{text}..", "round": f"({text})", "square": f"[{text}]"}
        yield {"id": row["id"], "prompt": row["prompt"], **forms}


def write(name: str, rows: Iterable[dict]) -> None:
    """Write rows as JSON lines, compressed without a time, so that the bytes are a function of the rows."""
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    (FOLDER / f"{name}.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def main() -> None:
    source = random.Random(SEED)
    sums = [(a, b) for a in range(10, 100) for b in range(10, 100)]
    source.shuffle(sums)
    pairs = [
        {"id": f"{a}+{b}", "prompt": f"{a}+{b}=", "chosen": answer(a, b), "rejected": answer(*other)}
        for first, second in partners(sums, source)
        for (a, b), other in ((first, second), (second, first))
    ]
    held_out, train = pairs[:HELD_OUT], pairs[HELD_OUT:]
    roles = ("user", "prompt"), ("assistant", "chosen")
    solved = [{"id": row["id"], "messages": [{"role": role, "content": row[key]} for role, key in roles]} for row in train]
    source.shuffle(solved)
    FOLDER.mkdir(parents=True, exist_ok=True)
    write("solved", solved)
    write("pairs", train)
    write("pairs_heldout", held_out)
    write("controls", controls(train))


if __name__ == "__main__":
    main()
