"""A SIMULATION of how Marin's executor names a step's output, to show its effect on the fix. It uses none of Marin's code.

From docs/references.md#marin-executor (`execution/executor.py`, `ExecutorStep`): a step's version is the md5 of its name,
its `versioned()` config fields and its dependencies' versions, six hex digits; "the fn name is not part of the version"; the
output is at `{prefix}/{name}-{hash}`, and a step whose `.executor_status` is SUCCESS is skipped. Neither the code nor the list
of files is in the hash. We infer that this kept the file in Bison's cache. Marin does not report it.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tokenizers import Tokenizer

from scenarios.bundle import TEST_FILE

STATUS_FILE, SUCCESS = ".executor_status", "SUCCESS"
VERSION_CHARS = 6


@dataclass(frozen=True)
class SimulatedStep:
    """A step by Marin's rules: `function(output, *dependencies' outputs)`. `versioned` and the dependencies decide its name."""

    name: str
    function: Callable[..., None]
    versioned: Mapping[str, object] = field(default_factory=dict)
    dependencies: tuple["SimulatedStep", ...] = ()

    @property
    def version(self) -> str:
        payload = {
            "name": self.name,
            "config": dict(self.versioned),
            "dependencies": [dependency.version for dependency in self.dependencies],
        }
        return hashlib.md5(json.dumps(payload, sort_keys=True).encode()).hexdigest()[:VERSION_CHARS]

    def output(self, prefix: Path) -> Path:
        return prefix / f"{self.name}-{self.version}"


@dataclass(frozen=True)
class SimulatedRun:
    """The result of running a step and its dependencies: names of steps that ran or were skipped, and the last output."""

    ran: tuple[str, ...]
    skipped: tuple[str, ...]
    output: Path


def run_simulated(step: SimulatedStep, prefix: Path) -> SimulatedRun:
    """Run a step and its dependencies by Marin's rules: a step whose status is SUCCESS does not run again."""
    ran: list[str] = []
    skipped: list[str] = []
    _run(step, prefix, ran, skipped)
    return SimulatedRun(tuple(ran), tuple(skipped), step.output(prefix))


def _run(step: SimulatedStep, prefix: Path, ran: list[str], skipped: list[str]) -> None:
    for dependency in step.dependencies:
        _run(dependency, prefix, ran, skipped)
    output = step.output(prefix)
    status = output / STATUS_FILE
    if status.exists() and status.read_text() == SUCCESS:
        skipped.append(step.name)
        return
    output.mkdir(parents=True, exist_ok=True)
    step.function(output, *(dependency.output(prefix) for dependency in step.dependencies))
    status.write_text(SUCCESS)
    ran.append(step.name)


def tokenized_step(bundle: Path, tokenizer: Path, preprocess: Callable[[Path, Path], None]) -> SimulatedStep:
    """Download, preprocess, tokenize: the three steps of the incident."""

    def download(output: Path) -> None:
        for path in sorted(bundle.iterdir()):
            (output / path.name).write_bytes(path.read_bytes())

    def tokenize(output: Path, documents: Path) -> None:
        loaded = Tokenizer.from_file(str(tokenizer))
        texts = json.loads((documents / "documents.json").read_text())
        (output / "tokens.json").write_text(json.dumps([encoded.ids for encoded in loaded.encode_batch_fast(texts)]))

    downloaded = SimulatedStep("raw/dolmino", download, {"revision": "as pinned"})
    documents = SimulatedStep("documents/dolmino_math", preprocess, {"text_key": "text"}, (downloaded,))
    return SimulatedStep("tokenized/dolmino_math", tokenize, {"tokenizer": "bison"}, (documents,))


def read_every_file(output: Path, downloaded: Path) -> None:
    """The preprocessing before the fix: every file of the bundle."""
    _write_documents(output, sorted(downloaded.glob("*.json")))


def leave_out_the_test_file(output: Path, downloaded: Path) -> None:
    """The preprocessing after the fix."""
    _write_documents(output, [path for path in sorted(downloaded.glob("*.json")) if path.name != TEST_FILE])


def _write_documents(output: Path, paths: list[Path]) -> None:
    texts = [json.loads(line)["text"] for path in paths for line in path.read_text(encoding="utf-8").splitlines()]
    (output / "documents.json").write_text(json.dumps(texts))


def cached_texts(run: SimulatedRun, tokenizer: Path) -> list[str]:
    """The documents of a simulated token cache, decoded."""
    loaded = Tokenizer.from_file(str(tokenizer))
    return [loaded.decode(ids) for ids in json.loads((run.output / "tokens.json").read_text())]
