"""Sources, days, steps, iterations, shards, tasks and trials as Dagster partitions."""

import datetime
from collections.abc import Iterator, Sequence

import dagster as dg

FIRST_DAY = "2026-11-01"
DAY_FORMAT = "%Y-%m-%d"


def sources(names: Sequence[str]) -> dg.StaticPartitionsDefinition:
    """One partition for each source; assets over the same sources have equal definitions."""
    return dg.StaticPartitionsDefinition(list(names))


def days() -> dg.DailyPartitionsDefinition:
    """One partition for each UTC day including today (`end_offset=1`; by default a daily partition appears after its day)."""
    return dg.DailyPartitionsDefinition(start_date=FIRST_DAY, end_offset=1)


def steps(saved: Sequence[str]) -> dg.StaticPartitionsDefinition:
    """One partition for each step that a declared run keeps: what can be made, whether or not training has reached it."""
    return dg.StaticPartitionsDefinition(list(saved))


def iterations(names: Sequence[str]) -> dg.StaticPartitionsDefinition:
    """One partition for each iteration of a run on rewards."""
    return dg.StaticPartitionsDefinition(list(names))


def shards(names: Sequence[str]) -> dg.StaticPartitionsDefinition:
    """One partition for each shard of a synthetic set."""
    return dg.StaticPartitionsDefinition(list(names))


def steps_by_task(saved: Sequence[str], tasks: Sequence[str]) -> dg.MultiPartitionsDefinition:
    """Every kept step times every evaluation task."""
    return dg.MultiPartitionsDefinition({"step": steps(saved), "task": dg.StaticPartitionsDefinition(list(tasks))})


def trials(names: Sequence[str]) -> dg.StaticPartitionsDefinition:
    """One partition for each trial of a sweep."""
    return dg.StaticPartitionsDefinition(list(names))


def rounds(search: str) -> dg.DynamicPartitionsDefinition:
    """One partition for each round of a search, added as rounds are proposed."""
    return dg.DynamicPartitionsDefinition(name=f"rounds of {search}")


def trials_of_rounds(search: str, slots: Sequence[str]) -> dg.MultiPartitionsDefinition:
    """Every round times every place in it."""
    return dg.MultiPartitionsDefinition({"round": rounds(search), "trial": dg.StaticPartitionsDefinition(list(slots))})


def is_dynamic(definition: dg.PartitionsDefinition) -> bool:
    """Whether its keys, or those of one dimension, are known to the instance alone."""
    if isinstance(definition, dg.MultiPartitionsDefinition):
        return any(is_dynamic(each.partitions_def) for each in definition.partitions_defs)
    return isinstance(definition, dg.DynamicPartitionsDefinition)


def dynamic_parts(definition: dg.PartitionsDefinition, key: str) -> Iterator[tuple[str, str]]:
    """Yield what an instance must know of a key: the name of each dynamic definition, and the part that is a key of it."""
    if isinstance(definition, dg.MultiPartitionsDefinition):
        parts = definition.get_partition_key_from_str(key).keys_by_dimension
        for each in definition.partitions_defs:
            yield from dynamic_parts(each.partitions_def, parts[each.name])
    elif isinstance(definition, dg.DynamicPartitionsDefinition):
        yield str(definition.name), key


def tasks(names: Sequence[str]) -> dg.StaticPartitionsDefinition:
    """One partition for each evaluation task."""
    return dg.StaticPartitionsDefinition(list(names))


def step_and_task(key: str) -> tuple[str, str]:
    """Split a step-by-task partition key; dimensions are joined in the order of their names."""
    step, task = key.split("|")
    return step, task


def day_of(moment: datetime.datetime) -> str:
    """Return the partition key of the UTC day of a moment."""
    return moment.astimezone(datetime.UTC).strftime(DAY_FORMAT)
