"""Text of any size from an n-gram model of text that lies here, with planted copies in clusters of uneven sizes.

A word is a run of characters without white space and the white space after it, so lines and paragraphs come out, too. The
next word is one that followed the last word somewhere in the given text (a model of two words): two documents share
short phrases and seldom five words in a row. A quarter of the documents are copies of earlier ones, four of ten of them
exact, the others with .5 to 8 % of their words replaced. The first documents are copied most often (a copy is of the
first share x of them with probability x^.3), which makes a few large clusters and many small ones. With one Python and
one seed the text is the same.
"""

import lzma
import re
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

WORD = re.compile(r"\S+\s*")
LEARNT_CHARACTERS = 24_000_000
STREAMS = 2_048
MEAN_WORDS, SIGMA = 600, 0.9
"""Of the lengths, which are lognormal."""
COPIED, EXACT = 0.25, 0.4
EDIT_RATES = (0.005, 0.01, 0.02, 0.04, 0.08)
POOL = 4_096
"""Documents that can be copied."""
SUFFIXES = (".py", ".md", ".rst", ".txt")


@dataclass(frozen=True)
class Model:
    """Words, and the words that follow each: `followers[starts[w] : starts[w + 1]]`."""

    words: np.ndarray
    followers: np.ndarray
    starts: np.ndarray


def learnt(speeches: Path) -> Model:
    """Learn the model from installed source files and documentation, and from the speeches of this repository."""
    texts, size = [lzma.decompress(speeches.read_bytes()).decode()], 0
    for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*"), key=lambda path: path.name):
        if path.suffix in SUFFIXES and path.is_file() and size < LEARNT_CHARACTERS:
            texts.append(path.read_bytes().decode(errors="ignore"))
            size += len(texts[-1])
    found = pl.Series(WORD.findall("\n\n".join(texts)))
    words = found.unique(maintain_order=True)
    numbers = found.replace_strict(words, pl.Series(range(words.len())), return_dtype=pl.Int64).to_numpy()
    numbers = np.append(numbers, numbers[0])  # so that the last word has a follower
    order = np.argsort(numbers[:-1], kind="stable")
    starts = np.searchsorted(numbers[:-1][order], np.arange(words.len() + 1))
    return Model(np.array(words.to_list(), object), numbers[1:][order], starts)


def documents(model: Model, num_bytes: int, seed: int) -> Iterator[str]:
    """Yield documents until they have so many bytes."""
    choose = np.random.default_rng(seed)
    pool: list[np.ndarray] = []
    size = 0
    while size < num_bytes:
        for words in _walked(model, choose):
            if pool and choose.random() < COPIED:
                words = _copy(pool[int(len(pool) * choose.random() ** 3.3)], model, choose)
            elif len(pool) < POOL:
                pool.append(words)
            text = "".join(model.words[words])
            size += len(text.encode())
            yield text
            if size >= num_bytes:
                return


def _walked(model: Model, choose: np.random.Generator) -> Sequence[np.ndarray]:
    """Return one document of each of `STREAMS` walks."""
    lengths = np.maximum(8, choose.lognormal(np.log(MEAN_WORDS) - SIGMA**2 / 2, SIGMA, STREAMS)).astype(np.int64)
    steps = np.empty((lengths.max(), STREAMS), np.int64)
    word = choose.integers(model.words.size, size=STREAMS)
    for step in steps:
        step[:] = word
        first, count = model.starts[word], model.starts[word + 1] - model.starts[word]
        word = model.followers[first + (choose.random(STREAMS) * count).astype(np.int64)]
    return [steps[:length, stream].copy() for stream, length in enumerate(lengths.tolist())]


def _copy(words: np.ndarray, model: Model, choose: np.random.Generator) -> np.ndarray:
    if choose.random() < EXACT:
        return words
    edited = words.copy()
    changed = choose.random(words.size) < choose.choice(EDIT_RATES)
    edited[changed] = choose.integers(model.words.size, size=int(changed.sum()))
    return edited


def write(folder: Path, model: Model, num_bytes: int, seed: int, part_bytes: int = 32_000_000) -> int:
    """Write documents as Parquet files (`id`, `text`) of about so many bytes; return the bytes of all texts."""
    folder.mkdir(parents=True)
    texts, held, total, number = [], 0, 0, 0
    for text in documents(model, num_bytes, seed):
        texts.append(text)
        held += len(text.encode())
        if held >= part_bytes:
            number, total = _part(folder, texts, number), total + held
            texts, held = [], 0
    if texts:
        _part(folder, texts, number)
    return total + held


def _part(folder: Path, texts: list[str], number: int) -> int:
    ids = [f"{number}-{row}" for row in range(len(texts))]
    pl.DataFrame({"id": ids, "text": texts}).write_parquet(folder / f"part-{number:05d}.parquet", row_group_size=2_048)
    return number + 1
