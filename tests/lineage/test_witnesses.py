"""Manifests, tables and log compared on random lineages: honest ones agree, each lie is named once."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples
from random_lineage import Parents, dags, write_dag

from lineage.artifact.store import Artifact, Store
from lineage.graph.check_tables import every_manifest
from lineage.graph.consistency import Comparison, LogEvent, Parent, combined_version, compare


def honest(number: int, artifact: Artifact, digests: dict[str, str]) -> LogEvent:
    """What a log says that saw everything."""
    versions = {ref.key: ref.data_version for ref in artifact.spec.inputs}
    return LogEvent(
        number,
        artifact.spec.key,
        artifact.spec.partition,
        artifact.data_version,
        artifact.spec.version,
        digests[artifact.spec.address],
        artifact.spec.inputs,
        tuple(Parent(key, version, ((None, version),), version) for key, version in versions.items()),
        "run",
    )


def compared(store: Store, events: list[LogEvent]) -> Comparison:
    return compare(every_manifest(store), [], events, is_expired=lambda event: False, remake=lambda key, partition: "make it")


def lies(event: LogEvent) -> dict[str, LogEvent]:
    """Return every kind of false event, by the kind of disagreement that it must give."""
    by_kind: dict[str, LogEvent] = {
        "other_bytes": replace(event, data_version="0" * 32),
        "rewritten_manifest": replace(event, manifest="0" * 32),
        "no_manifest": replace(event, version="0" * 32),
    }
    if event.inputs and event.parents:
        first, *rest = event.parents
        by_kind["other_inputs"] = replace(event, inputs=event.inputs[1:])
        by_kind["forged_tag"] = replace(event, parents=(replace(first, recorded="0" * 32), *rest))
        wrong = replace(first, recorded="0" * 32, walked=((None, "0" * 32),), expected="0" * 32)
        by_kind["other_input_version"] = replace(event, parents=(wrong, *rest))
    return by_kind


@given(dags(max_nodes=6), st.data())
@settings(max_examples=examples(12))
def test_an_honest_log_agrees_and_one_lie_is_one_disagreement(
    tmp_path_factory: pytest.TempPathFactory, parents: Parents, data: st.DataObject
) -> None:
    store = Store(str(tmp_path_factory.mktemp("store")))
    made = write_dag(store, parents)
    digests = dict(every_manifest(store).digests)
    events = [honest(number, artifact, digests) for number, artifact in enumerate(made)]
    comparison = compared(store, events)
    assert (comparison.disagreements, comparison.unknown) == ((), ())
    assert comparison.counts["inputs that events confirm"] == sum(len(artifact.spec.inputs) for artifact in made)
    liar = data.draw(st.sampled_from(events))
    kind = data.draw(st.sampled_from(sorted(lies(liar))))
    lie = replace(lies(liar)[kind], number=len(events))
    named = [(one.kind, one.artifact) for one in compared(store, [*events, lie]).disagreements]
    assert named == [(kind, liar.name)]
    again = replace(liar, number=len(events) + 1)
    after = compared(store, [*events, lie, again])
    assert after.disagreements == (), "a true event after a lie mends it"
    of_artifact = kind != "no_manifest"
    assert [(one.kind, one.artifact) for one in after.corrected] == [(kind, liar.name)] * of_artifact, "and the lie is named"
    assert after.counts == comparison.counts, "an older event confirms nothing"
    silent = [event for event in events if event is not liar]
    assert compared(store, silent).disagreements == ()


def test_other_partitions_mapped_since_are_unknown_while_the_fold_is_that_of_the_manifest(tmp_path) -> None:
    """A source joined after the event: today's walk finds a partition that was not an input then."""
    store = Store(str(tmp_path))
    first, second = write_dag(store, [[], [0]])
    event = honest(1, second, dict(every_manifest(store).digests))
    recorded = combined_version([(None, first.data_version)])
    walked = ((None, first.data_version), ("joined", "1" * 32))
    (parent,) = event.parents
    mapped_since = replace(
        event, parents=(replace(parent, recorded=recorded, walked=walked, expected=combined_version(walked)),)
    )
    result = compared(store, [honest(0, first, dict(every_manifest(store).digests)), mapped_since])
    assert result.disagreements == ()
    assert [(one.artifact, one.input) for one in result.unknown] == [("tests/n1", "tests/n0")]
    forged = replace(mapped_since, parents=(replace(mapped_since.parents[0], recorded="0" * 32),))
    assert [one.kind for one in compared(store, [forged]).disagreements] == ["forged_tag"]


def test_an_event_without_a_manifest_is_judged_while_it_is_the_newest_and_not_when_it_expired(tmp_path) -> None:
    store = Store(str(tmp_path))
    (made,) = write_dag(store, [[]])
    true = honest(1, made, dict(every_manifest(store).digests))
    gone = replace(true, number=2, version="0" * 32)
    assert [one.kind for one in compared(store, [true, gone]).disagreements] == ["no_manifest"]
    assert compared(store, [gone, replace(true, number=3)]).disagreements == (), "later it is history"
    expired = compare(every_manifest(store), [], [true, gone], is_expired=lambda event: event is gone, remake=lambda *_: "")
    assert expired.disagreements == ()
    assert [one.why for one in expired.unknown] == ["its artifact was deleted on time"]
