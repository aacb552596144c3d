"""What protects an artifact from a purge: it is a root, or a root was made from it.

Roots: what the lab declares (given by the shell), published and exported models, forecasts and their verdicts, the newest
checkpoint of a run that has not ended, inputs of attempts that run, waivers, what was made under one, young artifacts, and
pins. A manifest that cannot be read stops every plan, because nobody knows what it protects.
"""

import datetime
from collections.abc import Mapping, Sequence

from lineage.artifact.manifest import MANIFEST_NAME
from lineage.artifact.store import Artifact, Store
from lineage.jobs.summary import SUMMARIES, StepSummary, read_summary, summaries_of_day
from operations.storage.pins import read_pins

PUBLISHED = ("trainer.hf_model", "trainer.gguf", "lineage.attestation")
KEPT_STAGES: Mapping[str, str] = {
    **dict.fromkeys(PUBLISHED, "published or exported"),
    "science.forecast": "a frozen forecast",
    "science.verdict": "the verdict on a forecast",
    "lineage.waiver": "a waiver",
}
CHECKPOINT = "trainer.checkpoint"
CLAIM_DAYS = 30
"""Days for which an attempt without an end protects its inputs. A process that was killed never ends its summary."""


def read_all(store: Store) -> dict[str, Artifact]:
    """Return every artifact by address. Raises: ValueError naming a manifest that cannot be read."""
    artifacts = {}
    for name in store.storage.find("", MANIFEST_NAME):
        address = name.removesuffix(f"/{MANIFEST_NAME}")
        artifact = store.open(address)
        if artifact is not None:
            if artifact.spec.address != address:
                raise ValueError(f"{store.storage.uri(name)} says that it is {artifact.spec.address}; repair it before a purge")
            artifacts[address] = artifact
    return artifacts


def claims(store: Store, now: datetime.datetime) -> dict[str, str]:
    """Return address -> reason of the inputs of attempts that run, and of what they make."""
    claimed: dict[str, str] = {}
    oldest = (now - datetime.timedelta(days=CLAIM_DAYS)).date().isoformat()
    for day in store.storage.folders(SUMMARIES):
        if day >= oldest:
            for name in summaries_of_day(store, day):
                summary = _summary(store, name)
                if summary is not None and _may_still_commit(store, summary):
                    why = f"attempt {summary.id} at {summary.name} runs"
                    claimed |= dict.fromkeys((*summary.inputs, summary.address), why)
    return claimed


def protected(
    artifacts: Mapping[str, Artifact],
    store: Store,
    declared: Mapping[str, str],
    now: datetime.datetime,
    young_days: float,
) -> dict[str, str]:
    """Return address -> why it is kept, for every artifact that must be. `declared`: address -> why, from the shell."""
    roots: dict[str, str] = {}
    for pin in read_pins(store).values():
        if pin.holds(now.date()):
            roots.setdefault(pin.address, f"pinned by {pin.owner} until {pin.expires}: {pin.why}")
    for address, why in declared.items():
        roots.setdefault(address, why)
    for address, why in claims(store, now).items():
        roots.setdefault(address, why)
    for address, why in _resumable(list(artifacts.values())).items():
        roots.setdefault(address, why)
    youngest = (now - datetime.timedelta(days=young_days)).isoformat(timespec="seconds")
    for address, artifact in artifacts.items():
        if artifact.spec.stage in KEPT_STAGES:
            roots.setdefault(address, KEPT_STAGES[artifact.spec.stage])
        if artifact.manifest.extra.get("waivers"):
            roots.setdefault(address, "made under a waiver")
        if artifact.manifest.created > youngest and young_days > 0:
            roots.setdefault(address, f"younger than {young_days:g} days")
    return _with_ancestors(artifacts, {address: why for address, why in roots.items() if address in artifacts})


def _with_ancestors(artifacts: Mapping[str, Artifact], roots: Mapping[str, str]) -> dict[str, str]:
    reasons = dict(roots)
    pending = list(roots)
    while pending:
        current = pending.pop()
        for ref in artifacts[current].spec.inputs:
            if ref.address in artifacts and ref.address not in reasons:
                root = reasons[current].partition("; an ancestor of ")[2] or artifacts[current].name
                reasons[ref.address] = f"{reasons[current].partition('; an ancestor of ')[0]}; an ancestor of {root}"
                pending.append(ref.address)
    return reasons


def _resumable(artifacts: Sequence[Artifact]) -> dict[str, str]:
    """The newest checkpoint of each run whose last step does not exist yet."""
    newest: dict[str, Artifact] = {}
    ended = set()
    for artifact in artifacts:
        if artifact.spec.stage != CHECKPOINT:
            continue
        step, run = artifact.spec.config.get("step"), artifact.spec.config.get("run")
        if not isinstance(step, int) or not isinstance(run, Mapping):
            continue
        process = artifact.spec.process
        if step >= int(run.get("num_steps", 0)):
            ended.add(process)
        if process not in newest or step > int(newest[process].spec.config["step"]):
            newest[process] = artifact
    return {a.spec.address: "the run can resume here" for process, a in newest.items() if process not in ended}


def _may_still_commit(store: Store, summary: StepSummary) -> bool:
    """Whether it runs, or its job continues although the step that launched it was stopped."""
    return summary.state == "running" or (summary.state == "interrupted" and store.open(summary.address) is None)


def _summary(store: Store, name: str) -> StepSummary | None:
    text = store.storage.read_text(name)
    return None if text is None else read_summary(text, store.storage.uri(name))
