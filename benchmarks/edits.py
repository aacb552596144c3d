"""Realistic edits, and what the lab reuses, flags as drifted and makes again after each.

    PYTHONPATH=. .venv/bin/python benchmarks/edits.py [--only TEXT] [--packages FOLDER] [--note FILE]

A real line (benchmarks/edits_line.py) is built once, in a copy of the checkout's tracked files. Then each edit of
benchmarks/edits_table.py is applied to the copy for real, and a fresh process (benchmarks/edits_probe.py) asks the lab over a
copy of the artifacts. The oracle makes everything again that the lab would have reused in silence. Beside it stands what the
identity rules of Marin would do, simulated: declared config and the hashes of dependencies, code outside.

`--packages` holds a folder for each other version: `pip install --no-deps --target FOLDER/xxhash 'xxhash<3.8'`, and the like
for tokenizers and pyarrow. Without it these edits are left out, and the table says so.
"""

import argparse
import json
import os
import queue
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.edits_outcome import Answers, Outcome, markdown, outcome_table, summary_table
from benchmarks.edits_patches import Operation, swap
from benchmarks.edits_row import ALTERED, GROWN, Edit
from benchmarks.edits_table import edits
from datakit.remote import folder_listing, listing_digest
from datakit.sources import FolderFiles, Unverified

REPOSITORY = Path(__file__).resolve().parents[1]
BUCKET_FILES, BUCKET_DOCUMENTS = 5, 40
PROBE_SECONDS = 600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="edits whose name or kind contains this")
    parser.add_argument("--packages", type=Path, help="folder of other versions of packages")
    parser.add_argument("--note", type=Path, help="write the table as Markdown")
    parser.add_argument("--parallel", type=int, default=2)
    options = parser.parse_args()
    started = time.perf_counter()
    chosen = [edit for edit in edits() if options.only in f"{edit.kind}: {edit.name}"]
    with tempfile.TemporaryDirectory(prefix="marin-edits-") as folder:
        lab = Lab.prepare(Path(folder), options.packages, options.parallel)
        print(f"{len(lab.base)} artifacts built in {time.perf_counter() - started:.0f} s", flush=True)
        together = [edit for edit in chosen if edit.bucket != ALTERED]
        with ThreadPoolExecutor(options.parallel) as pool:
            outcomes = list(pool.map(lab.ask, together))
        outcomes += [lab.ask(edit) for edit in chosen if edit.bucket == ALTERED]  # the others fetch from the same bucket
    seconds = time.perf_counter() - started
    for table in (outcome_table(outcomes), summary_table(outcomes)):
        Console(width=190).print(table)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cost = f"{seconds:.0f} s, {used.ru_utime + used.ru_stime:.0f} CPU s, {options.parallel} at a time"
    print(cost)
    if options.note is not None:
        options.note.write_text(markdown(outcomes, cost))
    if any(outcome.verdict.startswith(("MISSED", "REFUSED", "UNEXPECTED", "FAILED")) for outcome in outcomes):
        raise SystemExit(1)


@dataclass(frozen=True)
class Lab:
    """The built line, and free copies of the checkout."""

    folder: Path
    base: Answers
    packages: Path | None
    checkouts: "queue.Queue[Path]"

    @staticmethod
    def prepare(folder: Path, packages: Path | None, copies: int) -> "Lab":
        write_bucket(folder / "region-a")
        shutil.copytree(folder / "region-a", folder / "region-b")
        checkouts: queue.Queue[Path] = queue.Queue()
        for number in range(copies):
            checkouts.put(copy_checkout(folder / f"checkout-{number}", folder / "region-a"))
        lab = Lab(folder, {}, packages, checkouts)
        return Lab(folder, lab.probe(folder / "checkout-0", {"root": str(folder / "root"), "base": True}), packages, checkouts)

    def ask(self, edit: Edit) -> Outcome:
        """Apply an edit to a free copy of the checkout, ask, and put the copy back as it was."""
        started = time.perf_counter()
        overlay = None if not edit.package else self._overlay(edit.package)
        if edit.package and overlay is None:
            return Outcome(edit, {}, self.base, 0.0, "left out: give --packages")
        checkout, root = self.checkouts.get(), Path(tempfile.mkdtemp(dir=self.folder)) / "root"
        shutil.copytree(self.folder / "root", root)
        try:
            before = {
                path: path.read_bytes() for path in checkout.rglob("*.[pm][yd]") if path.is_file() and not path.is_symlink()
            }
            for operation in (*edit.operations, *self._moved_bucket(edit, root.parent)):
                operation(checkout)
            answers = self.probe(checkout, {"root": str(root), "workers": edit.workers, "jobs": sorted(edit.jobs)}, overlay)
            problem = ""
        except (subprocess.CalledProcessError, ValueError) as error:
            answers, problem = {}, f"FAILED: {getattr(error, 'stdout', '')[-600:]}{error}"
        finally:
            restore(checkout, before)
            self.checkouts.put(checkout)
            shutil.rmtree(root.parent)
        outcome = Outcome(edit, answers, self.base, time.perf_counter() - started, problem)
        print(f"{outcome.seconds:6.1f} s  {edit.kind}: {edit.name}: {outcome.verdict}", flush=True)
        return outcome

    def probe(self, checkout: Path, question: dict[str, Any], overlay: Path | None = None) -> Answers:
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        asked = {"base": False, "workers": 1, "jobs": []} | question
        (folder / "question.json").write_text(json.dumps(asked))
        path = os.pathsep.join(str(p) for p in (overlay, checkout) if p is not None)
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        command = [
            sys.executable,
            str(checkout / "benchmarks/edits_probe.py"),
            *(str(folder / f"{n}.json") for n in ("question", "answer")),
        ]
        subprocess.run(
            command, cwd=checkout, env=environment, check=True, text=True, timeout=PROBE_SECONDS,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return json.loads((folder / "answer.json").read_text())["nodes"]

    def _overlay(self, package: str) -> Path | None:
        if package == "typer":  # a version in metadata alone: nothing imports it
            overlay = self.folder / "overlay-typer"
            (overlay / "typer-99.0.dist-info").mkdir(parents=True, exist_ok=True)
            (overlay / "typer-99.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: typer\nVersion: 99.0\n")
            return overlay
        found = None if self.packages is None else self.packages / package
        return found if found is not None and found.is_dir() else None

    def _moved_bucket(self, edit: Edit, folder: Path) -> list[Operation]:
        """What an edit does to the bucket: alters a file of it in place, or points the source to a copy with one more file."""
        if not edit.bucket:
            return []
        region = self.folder / "region-a"
        listing = bucket_listing(region)
        if edit.bucket == ALTERED:
            return [lambda root: alter(region / "docs-2.jsonl")]
        assert edit.bucket == GROWN
        shutil.copytree(region, folder / "region-a")
        write_documents(
            folder / "region-a" / "docs-9.jsonl", [f"{text} Once more, in other words." for text in documents()[:7]], 9
        )
        grown = bucket_listing(folder / "region-a")
        return [
            swap("recipes/sources.py", f"file://{region}", f"file://{folder / 'region-a'}"),
            swap("recipes/sources.py", listing, grown),
        ]


def copy_checkout(target: Path, bucket: Path) -> Path:
    """Tracked files of this checkout, with one more source in the catalogue: files of a bucket."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        if (REPOSITORY / name).is_file() and not (REPOSITORY / name).is_symlink():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(REPOSITORY / name, target / name)
    entry = (
        f'        Source("bucket", FolderFiles("file://{bucket}", ("*.jsonl",), "{bucket_listing(bucket)}"), '
        'Records("jsonl"), "web", PSF, "with attribution", 3.0),\n'
    )
    imported = "from datakit.raw import installed_listing, repository_listing\n"
    swap("recipes/sources.py", imported, imported + "from datakit.sources import FolderFiles, Records\n")(target)
    anchor = '    """Files in this repository."""\n    return (\n'
    swap("recipes/sources.py", anchor, anchor + entry)(target)
    return target


def restore(checkout: Path, before: dict[Path, bytes]) -> None:
    """Put back what an edit changed; delete what it added."""
    for path in checkout.rglob("*.[pm][yd]"):
        if path not in before:
            path.unlink()
        elif path.read_bytes() != before[path]:
            path.write_bytes(before[path])


def documents() -> list[str]:
    """Texts of the bucket: docstrings of the standard library, the same for one Python."""
    import ast
    import sysconfig

    found: list[str] = []
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            text = ast.get_docstring(node) if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.Module) else None
            if text and 300 < len(text) < 3000:
                found.append(text)
    return list(dict.fromkeys(found))[: BUCKET_FILES * BUCKET_DOCUMENTS]


def write_bucket(folder: Path) -> None:
    texts = documents()
    for number in range(BUCKET_FILES):
        write_documents(folder / f"docs-{number}.jsonl", texts[number::BUCKET_FILES], number)


def write_documents(path: Path, texts: list[str], number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"id": f"{number}-{i}", "text": text}) + "\n" for i, text in enumerate(texts)))


def bucket_listing(folder: Path) -> str:
    loader = FolderFiles(f"file://{folder}", ("*.jsonl",), Unverified("", "to be listed"))
    return listing_digest(folder_listing(loader, trainable=True, what="the bucket"))


def alter(path: Path) -> None:
    """Other bytes, the same size."""
    text = path.read_text()
    if "the " not in text:
        raise ValueError(f"{path} has no word to misspell")
    path.write_text(text.replace("the ", "teh ", 1))


if __name__ == "__main__":
    main()
