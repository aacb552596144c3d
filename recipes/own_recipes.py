"""Recipe files of the lab's own: each has a function `study()`, and may have functions `sources()` and `ferry()`.

They lie in `recipes/own/`, or in the folder that `MARIN_RECIPES` names; a lab that runs the wheel has `lab.py` in its folder
too. A file with a mistake disables itself alone.
"""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from datakit.sources.source import Source
from lineage.project import PREFIX, lab_folder

FOLDER_VARIABLE = "MARIN_RECIPES"
LAB_FILE = "lab.py"


@dataclass(frozen=True)
class OwnRecipes:
    """The sources that the files declare, and for each file the function that declares its study or raises its mistake."""

    sources: tuple[Source, ...]
    studies: Mapping[str, Callable[[], Any]]
    """By path. Each returns a `recipes.study.Study`, which is not named here: it imports the catalogue, made of these files."""

    ferries: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    """By path. Each returns a `recipes.ferry.Ferry`, the lab's daily one."""


def own_folder() -> Path:
    """Return the folder of the lab's own recipe files; it need not exist."""
    own = lab_folder() / "recipes" if PREFIX else Path(__file__).with_name("own")
    return Path(os.environ.get(FOLDER_VARIABLE) or own).resolve()


def own_files() -> list[Path]:
    """Return the recipe files of the lab: those of its folder, and `lab.py` of a lab that runs the wheel."""
    lab_file = lab_folder() / LAB_FILE
    return [*([lab_file] if PREFIX and lab_file.is_file() else []), *sorted(own_folder().glob("*.py"))]


def load_own(files: Sequence[Path], taken: Collection[str]) -> OwnRecipes:
    """Load recipe files, in their order.

    A source whose name is in `taken`, or in an earlier file, is a mistake of its file.
    """
    sources: dict[str, Source] = {}
    studies, ferries = {}, {}
    for path in files:
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
            if hasattr(module, "ferry"):
                ferries[str(path)] = module.ferry
    return OwnRecipes(tuple(sources.values()), MappingProxyType(studies), MappingProxyType(ferries))


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
