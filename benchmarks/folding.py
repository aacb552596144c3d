"""CPU seconds that near-duplicate signing spends on folding, and on all else, for one language of each script.

    PYTHONPATH=. .venv/bin/python benchmarks/folding.py --locales /usr/share/locale --mb 4

Texts are the translated messages of installed programs, in documents of about 2 kB; a language with fewer bytes is read
more than once. A language without translations is left out. Times of folding are taken inside `sign_texts` (14x8), so
both sides share a process and a load; each is the median of the rounds. The table of code points and the compiled
program are made before. Bar: folding takes at most 15 % of the rest of signing.
"""

import argparse
import gettext
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

from datakit.dedup.minhash import preset, sign_texts
from datakit.text import shingles
from datakit.text.canonical_text import canonical_batch
from datakit.text.folding_table import folding_table

LANGUAGES = {
    "en_GB": "English",
    "fr": "French",
    "vi": "Vietnamese",
    "ru": "Russian (Cyrillic)",
    "el": "Greek",
    "ar": "Arabic",
    "he": "Hebrew",
    "hi": "Hindi (Devanagari)",
    "bn": "Bengali",
    "ta": "Tamil",
    "th": "Thai",
    "zh_CN": "Chinese (Han)",
    "ja": "Japanese (kana, Han)",
    "ko": "Korean (Hangul)",
}
DOCUMENT_BYTES = 2_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--locales", type=Path, default=Path("/usr/share/locale"), help="holds LANGUAGE/LC_MESSAGES/*.mo")
    parser.add_argument("--mb", type=float, default=4.0, help="text of each language")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    started = time.process_time()
    folding_table()
    print(f"the table of code points: {1e3 * (time.process_time() - started):.0f} ms; load {os.getloadavg()[0]:.1f}\n")
    print("| text | own bytes, MB | folding, ms/MB | rest of signing, ms/MB | ratio | canonical text, ms/MB |")
    print("|---|---|---|---|---|---|")
    for language, name in LANGUAGES.items():
        messages = translations(options.locales / language / "LC_MESSAGES")
        if not messages:
            continue
        texts = list(documents(messages, int(options.mb * 1e6)))
        rounds = [measured(texts) for _ in range(options.rounds + 1)][1:]
        folding, rest, canonical = (statistics.median(times) for times in zip(*rounds, strict=True))
        own = sum(len(message.encode()) for message in messages) / 1e6
        print(f"| {name} | {own:.1f} | {folding:.2f} | {rest:.2f} | {folding / rest:.1%} | {canonical:.2f} |", flush=True)
    print(f"\nload {os.getloadavg()[0]:.1f}")


def translations(folder: Path) -> list[str]:
    """Return the translated messages of a language, without headers and plural forms."""
    catalogs = [gettext.GNUTranslations(path.open("rb")) for path in sorted(folder.glob("*.mo"))]
    entries = [entry for catalog in catalogs for entry in vars(catalog)["_catalog"].items()]
    return [text for message, text in entries if message and isinstance(text, str)]


def documents(messages: Sequence[str], size: int) -> Iterator[str]:
    """Yield documents of `DOCUMENT_BYTES` or a little more until they have `size` bytes."""
    lines, length, written = [], 0, 0
    while True:
        for message in messages:
            lines.append(message)
            length += len(message.encode())
            if length >= DOCUMENT_BYTES:
                yield "\n".join(lines)
                written += length
                lines, length = [], 0
            if written >= size:
                return


def measured(texts: Sequence[str]) -> tuple[float, float, float]:
    """Return CPU milliseconds a MB of folding, of the rest of signing, and of `canonical_batch`."""
    size, folding, fold_batch = sum(len(text.encode()) for text in texts) / 1e6, 0.0, shingles.fold_batch

    def timed(*args):
        nonlocal folding
        started = time.process_time()
        folded = fold_batch(*args)
        folding += time.process_time() - started
        return folded

    started = time.process_time()
    with mock.patch.object(shingles, "fold_batch", timed):
        sign_texts(texts, preset("14x8"))
    signing = time.process_time() - started
    started = time.process_time()
    for batch in shingles.batches(texts):
        canonical_batch(batch)
    canonical = time.process_time() - started
    return 1e3 * folding / size, 1e3 * (signing - folding) / size, 1e3 * canonical / size


if __name__ == "__main__":
    main()
