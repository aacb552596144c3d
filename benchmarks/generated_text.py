"""Text of any size from an n-gram model of text that lies here, with planted copies in clusters of uneven sizes.

A word is a run of characters without white space and the white space after it, so lines and paragraphs come out, too. The
next word is one that followed the last word somewhere in the given text (a model of two words): two documents share
short phrases and seldom five words in a row. A quarter of the documents are copies of earlier ones, four of ten of them
exact, the others with .5 to 8 % of their words replaced. The first documents are copied most often (a copy is of the
first share x of them with probability x^.3), which makes a few large clusters and many small ones. With one Python and
one seed the text is the same. What each document is lies beside the text (`TRUTH`).
"""

import lzma
import re
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

SPEECHES = Path(__file__).resolve().parents[1] / "data" / "prose" / "sotu_every_third.jsonl.xz"
WORD = re.compile(r"\S+\s*")
LEARNT_CHARACTERS = 24_000_000
STREAMS = 2_048
MEAN_WORDS, SIGMA = 600, 0.9
"""Of the lengths, which are lognormal."""
COPIED, EXACT = 0.25, 0.4
EDIT_RATES = (0.005, 0.01, 0.02, 0.04, 0.08)
BYTES_A_COPIED = 80_000
"""Text for each document that can be copied: four copies each on average, one or two of most, many of the first. With the same
number of them at every size clusters would grow with the text."""

TRUTH = {"number": pl.Int64, "id": pl.String, "of": pl.Int64, "edited": pl.Float64}
"""Columns of the truth: a document's number and id; for a copy the number of the document that it copies, and the share of
its words that are other ones (0: exact)."""
SUFFIXES = (".py", ".md", ".rst", ".txt")


@dataclass(frozen=True)
class Model:
    """Words, and the words that follow each: `followers[starts[w] : starts[w + 1]]`."""

    words: np.ndarray
    followers: np.ndarray
    starts: np.ndarray


@dataclass(frozen=True)
class Document:
    """A text; for a copy, the number of the document that it copies and the share of its words that are other ones."""

    text: str
    of: int | None = None
    edited: float | None = None


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


def documents(model: Model, num_bytes: int, seed: int) -> Iterator[Document]:
    """Yield documents until they have so many bytes; the first new ones can be copied, one for `BYTES_A_COPIED` bytes."""
    choose, copied = np.random.default_rng(seed), max(1, num_bytes // BYTES_A_COPIED)
    pool: list[tuple[int, np.ndarray]] = []
    size = number = 0
    while size < num_bytes:
        for words in _walked(model, choose):
            of = edited = None
            if pool and choose.random() < COPIED:
                of, source = pool[int(len(pool) * choose.random() ** 3.3)]
                words = _copy(source, model, choose)
                edited = float((words != source).mean())
            elif len(pool) < copied:
                pool.append((number, words.astype(np.int32)))
            text = "".join(model.words[words])
            size, number = size + len(text.encode()), number + 1
            yield Document(text, of, edited)
            if size >= num_bytes:
                return


def _walked(model: Model, choose: np.random.Generator) -> Sequence[np.ndarray]:
    """Return one document of each of `STREAMS` walks. Only walks whose documents go on take a step; each has its own draws."""
    lengths = np.maximum(8, choose.lognormal(np.log(MEAN_WORDS) - SIGMA**2 / 2, SIGMA, STREAMS)).astype(np.int64)
    longest_first = np.argsort(-lengths, kind="stable")
    ended_by = np.searchsorted(np.sort(lengths), np.arange(lengths.max()), side="right")
    steps = np.empty((lengths.max(), STREAMS), np.int64)
    word = choose.integers(model.words.size, size=STREAMS)[longest_first]
    for step, ended in zip(steps, ended_by.tolist(), strict=True):
        word = word[: STREAMS - ended]
        step[: word.size] = word
        draws = choose.random(STREAMS)[longest_first[: word.size]]
        first, count = model.starts[word], model.starts[word + 1] - model.starts[word]
        word = model.followers[first + (draws * count).astype(np.int64)]
    place = np.argsort(longest_first)
    return [steps[:length, place[stream]].copy() for stream, length in enumerate(lengths.tolist())]


def _copy(words: np.ndarray, model: Model, choose: np.random.Generator) -> np.ndarray:
    if choose.random() < EXACT:
        return words
    edited = words.copy()
    changed = choose.random(words.size) < choose.choice(EDIT_RATES)
    edited[changed] = choose.integers(model.words.size, size=int(changed.sum()))
    return edited


def write(
    folder: Path,
    model: Model,
    num_bytes: int,
    seed: int,
    part_bytes: int = 32_000_000,
    *,
    truth: Path | None = None,
) -> int:
    """Write documents as Parquet files (`id`, `text`) of about so many bytes; return the bytes of all texts.

    With `truth`, a second folder has a file of `TRUTH` for each of them.
    """
    folder.mkdir(parents=True)
    if truth is not None:
        truth.mkdir()
    held: list[Document] = []
    size = total = first = number = 0
    for document in documents(model, num_bytes, seed):
        held.append(document)
        size += len(document.text.encode())
        if size >= part_bytes:
            _part(folder, truth, held, number, first)
            total, first, number = total + size, first + len(held), number + 1
            held, size = [], 0
    if held:
        _part(folder, truth, held, number, first)
    return total + size


def _part(folder: Path, truth: Path | None, held: list[Document], number: int, first: int) -> None:
    name, ids = f"part-{number:05d}.parquet", [f"{number}-{row}" for row in range(len(held))]
    texts = pl.DataFrame({"id": ids, "text": [document.text for document in held]})
    texts.write_parquet(folder / name, row_group_size=2_048)
    if truth is not None:
        numbers, origins = range(first, first + len(held)), [(document.of, document.edited) for document in held]
        columns = [numbers, ids, *(list(column) for column in zip(*origins, strict=True))]
        pl.DataFrame(dict(zip(TRUTH, columns, strict=True)), schema=TRUTH).write_parquet(truth / name)
