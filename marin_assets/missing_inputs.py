"""The error of an asset that was asked for before its inputs: the one command that makes them, then what is missing."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager

from jobs.campaigns import FERRY
from lineage.build.nodes import MissingArtifactError
from lineage.trust.gate import GateError


class MissingInputError(LookupError):
    """An asset was asked for before its inputs. The message has the command that makes them first, then what is missing."""


@contextmanager
def naming_the_command(key: tuple[str, ...], partition: str | None) -> Iterator[None]:
    """Turn missing inputs into one line that names the command. Raises: MissingInputError; GateError for other faults."""
    try:
        yield
    except MissingArtifactError as error:
        missing = str(error).removesuffix(": materialize it first")
        command = _command(error.node.key if error.node.key[-1] == "checkpoint" else key, partition)
        raise MissingInputError(f"`{command}` makes what is missing; {missing}") from None
    except GateError as error:
        if any(finding.problem != "missing" for finding in error.findings):
            raise
        names = ", ".join(finding.artifact for finding in error.findings)
        command = _command((*key[:2], "checkpoint") if key[0] == "runs" else key, partition)
        raise MissingInputError(f"`{command}` makes what is missing; missing: {names}") from None


def _command(key: tuple[str, ...], partition: str | None) -> str:
    """Return the command that makes an asset with all above it. A checkpoint is made by the training of its run."""
    if key[0] == FERRY:
        return f"./marin {FERRY} --day {partition}"
    if key[-1] == "checkpoint":
        return f"./marin materialize {'/'.join((*key[:-1], 'training'))}"
    chosen = "" if partition is None else f" --partition {shlex.quote(partition)}"
    return f"./marin materialize {'/'.join(key)}{chosen}"
