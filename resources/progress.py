"""How far a job is, in Dagster: its messages become lines of the run's log and observations of the asset."""

from collections.abc import Callable

import dagster as dg

from lineage.messages import Note


def observing(context: dg.AssetExecutionContext, key: dg.AssetKey, partition: str | None) -> Callable[[Note], None]:
    """A listener for the jobs of one step: the asset's page plots what is measured while the job runs.

    An observation is no materialization: it says nothing of the asset's state, and none of them is needed for anything.
    """

    def hear(note: Note) -> None:
        numbers = {name: dg.MetadataValue.float(float(value)) for name, value in note.numbers.items()}
        metadata = {"work": note.work, "done": note.done, "total": note.total, **numbers}
        context.log.info(str(note))
        context.log_event(dg.AssetObservation(key, partition=partition, description=str(note), metadata=metadata))

    return hear
