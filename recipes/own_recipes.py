"""Recipe files of the lab's own: each has a function `study()`, and may have a function `sources()`.

They lie in `recipes/own/`, or in the folder that `MARIN_RECIPES` names. A file with a mistake disables itself alone.
"""

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from datakit.sources.source import Source

FOLDER_VARIABLE = "MARIN_RECIPES"


@dataclass(frozen=True)
class OwnRecipes:
    """The sources that the files declare, and for each file the function that declares its study or raises its mistake."""

    sources: tuple[Source, ...]
    studies: Mapping[str, Callable[[], Any]]
    """Each returns a `recipes.study.Study`, which is not named here: it imports the catalogue, which is made of these files."""


def own_folder() -> Path:
    """Return the folder of the lab's own recipe files; it need not exist."""
    return Path(os.environ.get(FOLDER_VARIABLE) or Path(__file__).with_name("own")).resolve()


def load_own(folder: Path, taken: Collection[str]) -> OwnRecipes:
    """Load every recipe file of a folder, in the order of their names.

    A source whose name is in `taken`, or in an earlier file, is a mistake of its file.
    """
    sources: dict[str, Source] = {}
    studies = {}
    for path in sorted(folder.glob("*.py")):
        if path.name == "__init__.py":
            continue
        try:
            module = _module(path)
            declared = module.sources() if hasattr(module, "sources") else ()
            _check_names(declared, {*taken, *sources})
            studies[str(path)] = module.study
        except Exception as error:  # Whatever one file raises, the others load.
            studies[str(path)] = _raising(error)
        else:
            sources |= {source.name: source for source in declared}
    return OwnRecipes(tuple(sources.values()), MappingProxyType(studies))


def _module(path: Path) -> ModuleType:
    """Run a recipe file. Python's import would take the cached byte code of a file of equal size and second of change."""
    module = ModuleType(f"own_recipe_{path.stem}")
    module.__file__ = str(path)
    exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    return module


def _check_names(declared: tuple[Source, ...], taken: Collection[str]) -> None:
    if twice := sorted(source.name for source in declared if source.name in taken):
        raise ValueError(f"the catalogue has a source named {', '.join(twice)} already; rename it")


def _raising(error: Exception) -> Callable[[], Any]:
    def study() -> None:
        raise error

    return study
