"""Questions about a real repository: in which file is a function or class defined? An agent that reads answers them.

The repository is a raw artifact of the data engine (a package of the registry, vendored files), so its bytes are pinned. Names
that are defined exactly once in its Python files have one right answer, which the verifier compares exactly.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lineage.artifact.store import Artifact
from lineage.stage import Stage
from lineage.writing.writer import Writer
from post_training.environments.prompt import Prompt, Verdict, check_share, graded, split_of
from post_training.environments.table import write_prompts

FILES = "files"
_DEFINED = re.compile(r"^(?:def|class) ([A-Za-z]\w{5,})", re.MULTILINE)


@dataclass(frozen=True)
class Repository:
    """Which questions are asked: the first names in their order."""

    most_questions: int = 1_000
    held_out_share: float = 0.1

    def __post_init__(self) -> None:
        if self.most_questions < 2:
            raise ValueError(f"repository.most_questions is {self.most_questions}; it must be at least 2")
        check_share("repository", self.held_out_share)


def build(out: Writer, config: Repository, raw: Artifact) -> None:
    """Write a question for every name. Raises: ValueError if the repository defines fewer than two names once."""
    every = list(prompts(config, folder_of(raw)))[: config.most_questions]
    if len(every) < 2:
        raise ValueError(f"{raw.name} defines {len(every)} names exactly once in Python files; give another repository")
    write_prompts(out, every)


def folder_of(raw: Artifact) -> Path:
    """Return the root of a repository."""
    return raw.folder() / FILES


def prompts(config: Repository, folder: Path) -> Iterator[Prompt]:
    """Yield the questions in the order of the names."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(folder.rglob("*.py")):
        for name in _DEFINED.findall(path.read_text(errors="replace")):
            places[name].append(path.relative_to(folder).as_posix())
    for name in sorted(places):
        if len(places[name]) == 1:
            question = f"In which file is `{name}` defined? Submit the path from the repository's root, and nothing else."
            yield Prompt(name, split_of(name, config.held_out_share), question, places[name][0])


def judge(prompts: Sequence[Prompt], texts: Sequence[str]) -> list[Verdict]:
    """Judge answers: the path, with or without `./`."""
    return [
        graded(text.strip().removeprefix("./") == prompt.answer, text[:200])
        for prompt, text in zip(prompts, texts, strict=True)
    ]


REPOSITORY = Stage(
    "environments.repository",
    "1",
    build,
    description="Questions about a repository's files with an exact verifier, for agents that read.",
    checks=("file_set",),
)
