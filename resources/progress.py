"""Progress of a job in Dagster: its messages become lines of the run's log and observations of the asset."""

from collections.abc import Callable

import dagster as dg

from lineage.messages import ProgressMessage


def observing(context: dg.AssetExecutionContext, key: dg.AssetKey, partition: str | None) -> Callable[[ProgressMessage], None]:
    """Return a listener for the jobs of one step: the asset's page plots measurements while the job runs.

    An observation is no materialization: it does not change the asset's state, and nothing depends on it.
    """

    def hear(note: ProgressMessage) -> None:
        numbers = {name: dg.MetadataValue.float(float(value)) for name, value in note.numbers.items()}
        metadata = {"work": note.work, "done": note.done, "total": note.total, **numbers}
        context.log.info(str(note))
        context.log_event(dg.AssetObservation(key, partition=partition, description=str(note), metadata=metadata))

    return hear
