"""The command `marin verify`: make drifted artifacts again with today's code, compare their bytes, record the outcome."""

import dataclasses
import getpass
import json
import logging
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Console

from lineage.artifact.locate import locate
from lineage.artifact.store import Artifact, Store
from lineage.build import verify as build_verify
from lineage.build.drifted import drifted_artifacts, newest
from lineage.build.reproduce import Registry
from lineage.shards.execution import Execution
from lineage.storage.digests import identity_digest
from lineage.trust.evidence import Drift, Evidence
from marin_assets.cli.options import ARTIFACT, AS_JSON, ROOT, exit_by
from marin_assets.cli.show_lineage import stores_of

log = logging.getLogger(__name__)

VERIFY_WORKERS = 2


@dataclass(frozen=True)
class VerifyAnswer:
    """One drifted artifact and its result: evidence, or why there is none."""

    artifact: Artifact
    drift: Drift
    evidence: Evidence | None
    left_out: str = ""

    def __str__(self) -> str:
        outcome = "left out" if self.evidence is None else self.evidence.outcome
        return f"{outcome:<8} {self.artifact.name}: {self.left_out if self.evidence is None else self.evidence.verdict}"


def verify(
    artifact: Annotated[str | None, typer.Argument(help=ARTIFACT)] = None,
    all_drifted: Annotated[
        bool, typer.Option("--all-drifted", help="The newest artifact of every name that has drifted.")
    ] = False,
    shards: Annotated[int, typer.Option(min=1, help="Shards to make again, of an artifact that lists more.")] = 3,
    jobs: Annotated[bool, typer.Option("--jobs", help="Make artifacts of training and evaluation jobs again too.")] = False,
    attested: Annotated[
        str | None, typer.Option(help="An exported folder instead: check its signatures, every byte, and all it was made from.")
    ] = None,
    key: Annotated[list[str] | None, typer.Option(help="With --attested: PEM file of a publisher's public key.")] = None,
    identity: Annotated[
        list[str] | None,
        typer.Option(help="With --attested: NAME=ISSUER of a publisher who signed keyless (Sigstore): ada@x.org=https://..."),
    ] = None,
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Make drifted artifacts again with today's code in scratch space, compare their bytes, and record what came out.

    With --attested: verify a folder that somebody exported.
    """
    if attested is not None:
        from marin_assets.cli import signing

        if artifact is not None or all_drifted:
            raise typer.BadParameter("--attested names a folder; give no artifact with it")
        exit_by(signing.print_attested(attested, key or [], identity or [], as_json=as_json, console=Console()))
        return
    if (artifact is not None) == all_drifted:
        raise typer.BadParameter("name an artifact, or give --all-drifted")
    exit_by(print_verified(artifact, root, num_shards=shards, jobs=jobs, as_json=as_json, console=Console()))


def print_verified(text: str | None, root: str | None, *, num_shards: int, jobs: bool, as_json: bool, console: Console) -> bool:
    """Verify an artifact, or every drifted one without evidence. Returns if no other bytes have come out, now or before."""
    from recipes.stages import stages  # imports jax and the data engines: seconds that a walk does not need

    registry, stores = stages(), stores_of(root)
    drifted = drifted_artifacts([locate(stores, text)] if text is not None else newest(stores), registry)
    answers = []
    with tempfile.TemporaryDirectory(prefix="marin-verify-") as scratch:
        for artifact, drift in drifted:
            if drift.evidence is not None and text is None:
                answers.append(VerifyAnswer(artifact, drift, drift.evidence))
            else:
                answers.append(_ask(artifact, drift, registry, scratch, num_shards, jobs))
            if not as_json:
                console.print(str(answers[-1]), soft_wrap=True, markup=False, highlight=False)
    if as_json:
        print(json.dumps([_record(each) for each in answers], indent=1, ensure_ascii=False))
    elif not answers:
        console.print("nothing has drifted" if text is None else f"{text} has not drifted", soft_wrap=True, markup=False)
    return all(each.evidence is None or each.evidence.is_equal for each in answers)


def _ask(artifact: Artifact, drift: Drift, registry: Registry, scratch: str, num_shards: int, jobs: bool) -> VerifyAnswer:
    stage = registry[artifact.spec.stage]
    if stage.job is not None and not jobs:
        seconds = artifact.manifest.resources.wall_seconds
        return VerifyAnswer(artifact, drift, None, f"made by a job in {seconds:.0f} s; --jobs makes those again too")
    into = Store(f"{scratch}/{identity_digest(artifact.store.root)}")
    execution = Execution(VERIFY_WORKERS)
    evidence = build_verify.verify(artifact, stage, into, who=getpass.getuser(), num_shards=num_shards, execution=execution)
    return VerifyAnswer(artifact, drift, evidence)


def _record(each: VerifyAnswer) -> Mapping[str, object]:
    return {
        "name": each.artifact.name,
        "address": each.artifact.spec.address,
        "changes": list(each.drift.changes),
        "evidence": None if each.evidence is None else dataclasses.asdict(each.evidence),
        "left_out": each.left_out,
    }
