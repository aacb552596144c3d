"""Realistic edits, and what the lab reuses, flags as drifted and makes again after each.

    PYTHONPATH=. .venv/bin/python benchmarks/edits.py [--only TEXT] [--note FILE]

A real line (benchmarks/edits_run.py) is built once, in a copy of the checkout's tracked files. Then each edit of
benchmarks/edits_code.py is applied to the copy for real, and a fresh process (benchmarks/edits_probe.py) asks the lab over a
copy of the artifacts. The oracle makes everything again that the lab would have reused in silence. Beside it stands what the
identity rules of Marin would do, simulated: declared config and the hashes of dependencies, code outside.
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

from benchmarks.edits_code import edits
from benchmarks.edits_outcome import Answers, Outcome, markdown, outcome_table, summary_table
from benchmarks.edits_patches import swap
from benchmarks.edits_row import Edit
from datakit.sources.remote import folder_listing, listing_digest
from datakit.sources.source import FolderFiles, Unverified

REPOSITORY = Path(__file__).resolve().parents[1]
BUCKET_FILES, BUCKET_DOCUMENTS = 5, 40
PROBE_SECONDS = 600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="edits whose name or kind contains this")
    parser.add_argument("--note", type=Path, help="write the table as Markdown")
    parser.add_argument("--parallel", type=int, default=2)
    options = parser.parse_args()
    started = time.perf_counter()
    chosen = [edit for edit in edits() if options.only in f"{edit.kind}: {edit.name}"]
    with tempfile.TemporaryDirectory(prefix="marin-edits-") as folder:
        lab = Lab.prepare(Path(folder), options.parallel)
        print(f"{len(lab.base)} artifacts built in {time.perf_counter() - started:.0f} s", flush=True)
        with ThreadPoolExecutor(options.parallel) as pool:
            outcomes = list(pool.map(lab.ask, chosen))
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
    checkouts: "queue.Queue[Path]"

    @staticmethod
    def prepare(folder: Path, copies: int) -> "Lab":
        write_bucket(folder / "region-a")
        checkouts: queue.Queue[Path] = queue.Queue()
        for number in range(copies):
            checkouts.put(copy_checkout(folder / f"checkout-{number}", folder / "region-a"))
        lab = Lab(folder, {}, checkouts)
        return Lab(folder, lab.probe(folder / "checkout-0", {"root": str(folder / "root"), "base": True}), checkouts)

    def ask(self, edit: Edit) -> Outcome:
        """Apply an edit to a free copy of the checkout, ask, and put the copy back as it was."""
        started = time.perf_counter()
        checkout, root = self.checkouts.get(), Path(tempfile.mkdtemp(dir=self.folder)) / "root"
        shutil.copytree(self.folder / "root", root)
        try:
            before = {
                path: path.read_bytes() for path in checkout.rglob("*.[pm][yd]") if path.is_file() and not path.is_symlink()
            }
            for operation in edit.operations:
                operation(checkout)
            answers = self.probe(checkout, {"root": str(root), "workers": edit.workers, "jobs": sorted(edit.jobs)})
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

    def probe(self, checkout: Path, question: dict[str, Any]) -> Answers:
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        whole_question = {"base": False, "workers": 1, "jobs": []} | question
        (folder / "question.json").write_text(json.dumps(whole_question))
        environment = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"}
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
    imported = "from datakit.sources.raw import installed_listing, repository_listing\n"
    swap("recipes/sources.py", imported, imported + "from datakit.sources.source import FolderFiles, Records\n")(target)
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

    texts: list[str] = []
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            text = ast.get_docstring(node) if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.Module) else None
            if text and 300 < len(text) < 3000:
                texts.append(text)
    return list(dict.fromkeys(texts))[: BUCKET_FILES * BUCKET_DOCUMENTS]


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


if __name__ == "__main__":
    main()
