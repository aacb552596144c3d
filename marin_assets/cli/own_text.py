"""Turn files of own text into a recipe file: look at them, choose sizes by rules, write down the choices."""

import keyword
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from glob import escape
from pathlib import Path

from datakit.sources.remote import folder_listing, listing_digest
from datakit.sources.source import FolderFiles, Records, Unverified
from datakit.survey import Survey, TextFiles, survey
from lineage.project import PREFIX
from recipes.lab import declarations
from recipes.own_recipes import own_folder
from recipes.own_sizes import SEQ_LEN, Sizes, sizes
from recipes.sources import catalogue

NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
RESERVED = ("study", "sources")
LEAST_DOCUMENTS = 20
HELDOUT_DOCUMENTS = 20
HELDOUT_SHARES = (0.02, 0.2)
"""Least and largest share of documents that is held out. `HELDOUT_DOCUMENTS` are held out if their share is in between."""


@dataclass(frozen=True)
class Own:
    """A run over own text: its name, its files, the chosen sizes, and which items it is cleaned of."""

    name: str
    survey: Survey
    sizes: Sizes
    vendored: bool = True
    """Whether it is cleaned of the repository's own benchmark items, which need no registry."""

    @property
    def heldout_share(self) -> float:
        least, most = HELDOUT_SHARES
        return round(min(most, max(least, HELDOUT_DOCUMENTS / self.survey.num_documents)), 3)

    @property
    def source_names(self) -> tuple[str, ...]:
        """Return one source name for each kind of file."""
        kinds = [files.kind for files in self.survey.text_files]
        return (self.name,) if len(kinds) == 1 else tuple(f"{self.name}_{files}" for files in kinds)


def look(name: str, files: Sequence[str], *, text_field: str | None, flops: float, vocab_size: int | None) -> Own:
    """Look at files and choose sizes. Raises: ValueError for a name or files that cannot be trained on."""
    _check_name(name)
    seen = survey(*_folder_and_names(files), text_field)
    if seen.num_documents < LEAST_DOCUMENTS:
        raise ValueError(
            f"{seen.folder} holds {seen.num_documents} documents; at least {LEAST_DOCUMENTS} are needed, some of them to be "
            "held out: give more or longer files"
        )
    return Own(name, seen, sizes(seen.num_bytes, seen.num_words, flops, vocab_size))


def recipe_path(name: str) -> Path:
    """Return where the recipe file of a run over own text is."""
    return own_folder() / f"{name}.py"


def write_recipe(own: Own) -> Path:
    """Write the recipe file of a run; a file with equal text stays. Raises: ValueError for a file with another text."""
    path, text = recipe_path(own.name), recipe_text(own)
    if path.exists():
        if path.read_text() != text:
            raise ValueError(
                f"{path} exists and says something else than these files and options give; train it as it is with `./marin "
                f"train --name {own.name}`, delete it, or choose another name"
            )
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text)
    draft.replace(path)
    return path


def _check_name(name: str) -> None:
    """Check a name. Raises: ValueError if it cannot name a run and a source, or if something else has it."""
    if not NAME.fullmatch(name) or keyword.iskeyword(name) or name in RESERVED:
        raise ValueError(
            f"--name is {name!r}; give a small letter, then small letters, digits and _, at most 40, no Python word"
        )
    if recipe_path(name).exists():
        return
    declared = declarations()
    if (
        name in {each.name for each in (*declared.runs, *declared.rewards, *declared.corpora, *declared.broken)}
        or name in catalogue()
    ):
        where = declared.study_of.get(name)
        place = f"recipes/studies/{where}.py has it" if where else "the source catalogue has it"
        raise ValueError(f"--name {name} is taken ({place}); choose another name")


def _folder_and_names(files: Sequence[str]) -> tuple[Path, list[str]]:
    """Return the folder of the given paths, and the names of all files relative to it."""
    paths = [Path(each).resolve() for each in files]
    for path, given in zip(paths, files, strict=True):
        if not path.exists():
            raise ValueError(f"{given}: there is no such file or folder; check the path")
    if len(paths) == 1 and paths[0].is_dir():
        folder, own_files = paths[0], [path for path in paths[0].rglob("*") if path.is_file()]
    else:
        folders = [path for path in paths if path.is_dir()]
        if folders:
            raise ValueError(f"{folders[0]} is one of {len(paths)} things given; give one folder, or files alone")
        folder, own_files = Path(os.path.commonpath([path.parent for path in paths])), paths
    return folder, [path.relative_to(folder).as_posix() for path in own_files]


def loader_of(own: Own, files: TextFiles) -> FolderFiles:
    """Return the pinned loader of the files of one kind: by suffix where that names them, else one by one."""
    seen = own.survey
    by_suffix = tuple(f"*{suffix}" for suffix in files.suffixes)
    others = tuple(name for names in seen.left_out.values() for name in names if name.endswith(files.suffixes))
    there = {path.relative_to(seen.folder).as_posix() for path in seen.folder.rglob("*") if path.is_file()}
    matched = {name for name in there if name.endswith(files.suffixes)}
    if matched == {*files.names, *others}:
        draft = FolderFiles(str(seen.folder), by_suffix, Unverified("", "not computed yet"), others)
    else:
        draft = FolderFiles(str(seen.folder), tuple(escape(name) for name in files.names), Unverified("", "not computed yet"))
    listed = folder_listing(draft, trainable=True, what=f"source {own.name}")
    return FolderFiles(draft.url, draft.globs, listing_digest(listed), draft.exclude)


def recipe_text(own: Own) -> str:
    """Return the text of a recipe file: sources, run and study, all numbers as chosen."""
    sizes, names = own.sizes, own.source_names
    formats = any(isinstance(files.format, Records) for files in own.survey.text_files)
    cleaned = "cleaned_of_vendored_items" if own.vendored else "cleaned_of_benchmarks"
    every, warmup = max(1, -(-sizes.num_steps // 3)), max(1, sizes.num_steps // 12)
    rate = f"peak_learning_rate={sizes.learning_rate}"
    return f'''"""A run over own text, written by `marin init` or `marin train`: edit it, then run `./marin train --name NAME`.

What you change gets new artifacts, and what was made before stays. docs/recipes/add_a_run.md explains the records.
"""

from {PREFIX}datakit.corpus.filters import CorpusConfig
from {PREFIX}datakit.sources.source import FolderFiles, {"Records, " if formats else ""}Source, Unverified
from {PREFIX}recipes.pipeline import {cleaned}, pipeline
from {PREFIX}recipes.records.run import Evaluation, Run
from {PREFIX}recipes.study import Study
from {PREFIX}trainer.spec.config import RunSpec
from {PREFIX}trainer.spec.llama import LlamaConfig
from {PREFIX}trainer.spec.optimizers import AdamWConfig
from {PREFIX}trainer.spec.schedules import WarmupStableDecay

LICENCE = Unverified("", "own text, whose licence nobody has stated")


def study() -> Study:
    return Study("What does a model learn from the text `{own.name}`?", runs=({own.name},))


def sources() -> tuple[Source, ...]:
    return (
{"".join(_source_text(own, name, files) for name, files in zip(names, own.survey.text_files, strict=True))}    )


def {own.name}() -> Run:
    cleaned = {cleaned}()
    mix = pipeline(
        "{own.name}",
        {_tuple_text(names, 8)},
        cleaned.suites,
        vocab_size={sizes.vocab_size},
        cleaned=cleaned,
        filters=CorpusConfig(heldout_frac={own.heldout_share}),
    )
    spec = RunSpec(
        name="{own.name}",
        model=LlamaConfig(
            vocab_size=mix.tokens.vocab_size,
            hidden_dim={sizes.hidden_dim},
            intermediate_dim={sizes.intermediate_dim},
            num_layers={sizes.num_layers},
            num_heads={sizes.num_heads},
            num_kv_heads={sizes.num_heads},
            max_seq_len={SEQ_LEN},
        ),
        optimizer=AdamWConfig(),
        schedule=WarmupStableDecay({rate}, warmup_steps={warmup}, decay_frac=0.4),
        batch_size={sizes.batch_size},
        seq_len={SEQ_LEN},
        num_steps={sizes.num_steps},
        seed=1,
        save_every_steps={every},
    )
    return Run(spec, mix, Evaluation(cleaned.suites))
'''


def _source_text(own: Own, name: str, files: TextFiles) -> str:
    loader = loader_of(own, files)
    exclude = f"\n                exclude={_tuple_text(loader.exclude, 16)}," if loader.exclude else ""
    return f"""        Source(
            name={_quoted(name)},
            loader=FolderFiles(
                url={_quoted(loader.url)},
                globs={_tuple_text(loader.globs, 16)},
                listing={_quoted(str(loader.listing))},{exclude}
            ),
            format={_format_text(files.format)},
            domain={_quoted(files.domain)},
            licence=LICENCE,
            terms="own text",
            mixture_weight={max(0.001, round(files.num_bytes / 1e6, 3))},
        ),
"""


def _format_text(form: object) -> str:
    if not isinstance(form, Records):
        return _quoted(str(form))
    return f"Records({_quoted(form.container)}, text={_quoted(form.text)}, id={_quoted(form.id) if form.id else None})"


def _tuple_text(values: Sequence[str], indent: int) -> str:
    """Return a tuple as the formatter writes it: in one line, or a line for each value if there are several."""
    if len(values) == 1:
        return f"({_quoted(values[0])},)"
    inner = "".join(f"{' ' * (indent + 4)}{_quoted(value)},\n" for value in values)
    return f"(\n{inner}{' ' * indent})"


def _quoted(text: str) -> str:
    """Return a string literal in double quotes."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
