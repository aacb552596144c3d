"""What protects an artifact from a purge: it is a root, or a root was made from it.

Roots: what the lab declares (given by the shell), published and exported models, forecasts and their verdicts, what a run that
has not ended resumes from, inputs of attempts that run, waivers, what was made under one, young artifacts, and pins. "Made
from" includes the rollouts that a checkpoint learned from. A manifest that cannot be read stops every plan, because nobody
knows what it protects.
"""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import replace

from lineage.artifact.manifest import MANIFEST_NAME
from lineage.artifact.store import Artifact, Store
from lineage.jobs.summary import SUMMARIES, StepSummary, read_summary, summaries_of_day
from lineage.storage.digests import identity_digest
from operations.storage.needs import REWARD_CHECKPOINT, ROLLOUTS, needs, rollouts_in
from operations.storage.pins import read_pins

PUBLISHED = ("trainer.hf_model", "trainer.hf_adapter", "trainer.gguf", "lineage.attestation")
KEPT_STAGES: Mapping[str, str] = {
    **dict.fromkeys(PUBLISHED, "published or exported"),
    "science.forecast": "a frozen forecast",
    "science.ladder_forecast": "a frozen forecast",
    "science.verdict": "the verdict on a forecast",
    "science.promotion": "the verdict on a variant",
    "lineage.waiver": "a waiver",
}
CHECKPOINTS = ("trainer.checkpoint", REWARD_CHECKPOINT)
ROLLING = ".work/rolling"
"""Below a store's root: checkpoints between those that are kept, while a run has not ended (`trainer.saving`)."""
RESUMES = "the run can resume here"
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
    for address, why in (_resumable(list(artifacts.values())) | _of_rolling(artifacts, store)).items():
        roots.setdefault(address, why)
    youngest = now - datetime.timedelta(days=young_days)
    for address, artifact in artifacts.items():
        if artifact.spec.stage in KEPT_STAGES:
            roots.setdefault(address, KEPT_STAGES[artifact.spec.stage])
        if artifact.manifest.extra.get("waivers"):
            roots.setdefault(address, "made under a waiver")
        if artifact.manifest.created > youngest.isoformat(timespec="seconds") and young_days > 0:
            roots.setdefault(address, f"younger than {young_days:g} days")
    roots = {address: why for address, why in roots.items() if address in artifacts}
    kept = _with_ancestors(artifacts, roots)
    if young_days > 0:
        late = _written_since(store, [address for address in artifacts if address not in kept], youngest)
        why = f"written less than {young_days:g} days ago by the storage's clock"
        kept = _with_ancestors(artifacts, {**roots, **dict.fromkeys(late, why)}) if late else kept
    return kept


def _written_since(store: Store, addresses: Sequence[str], when: datetime.datetime) -> list[str]:
    """Return the addresses whose manifests were written since, whatever time their writers say (`created`)."""
    files, oldest_ns = store.storage.files, int(when.timestamp() * 1e9)
    written = store.storage.read_each(lambda address: files.written_ns(f"{address}/{MANIFEST_NAME}"), addresses)
    return [address for address, ns in zip(addresses, written, strict=True) if ns is not None and ns > oldest_ns]


def _with_ancestors(artifacts: Mapping[str, Artifact], roots: Mapping[str, str]) -> dict[str, str]:
    reasons, rollouts = dict(roots), rollouts_in(each.manifest for each in artifacts.values())
    pending = list(roots)
    while pending:
        current = pending.pop()
        for address in needs(artifacts[current].manifest, rollouts):
            if address in artifacts and address not in reasons:
                root = reasons[current].partition("; an ancestor of ")[2] or artifacts[current].name
                reasons[address] = f"{reasons[current].partition('; an ancestor of ')[0]}; an ancestor of {root}"
                pending.append(address)
    return reasons


def _resumable(artifacts: Sequence[Artifact]) -> dict[str, str]:
    """Return the newest checkpoint of each run whose last step does not exist yet, and all rollouts of such a run."""
    newest: dict[str, Artifact] = {}
    ended = set()
    for artifact in artifacts:
        if artifact.spec.stage not in CHECKPOINTS:
            continue
        step, run = artifact.spec.config.get("step"), artifact.spec.config.get("run")
        if not isinstance(step, int) or not isinstance(run, Mapping):
            continue
        job = _job_of(artifact)
        if step >= int(run.get("num_steps", 0)):
            ended.add(job)
        if job not in newest or step > int(newest[job].spec.config["step"]):
            newest[job] = artifact
    resumed = {a.spec.address: RESUMES for job, a in newest.items() if job not in ended}
    rollouts = [artifact for artifact in artifacts if artifact.spec.stage == ROLLOUTS and _job_of(artifact) not in ended]
    return resumed | {each.spec.address: "its run has not ended" for each in rollouts}


def _job_of(artifact: Artifact) -> str:
    """Return what is equal for the checkpoints of a run, and for the rollouts that its job commits beside them."""
    spec = artifact.spec
    config = {name: value for name, value in spec.config.items() if name not in ("step", "iteration")}
    of_rewards = spec.stage in (REWARD_CHECKPOINT, ROLLOUTS)
    key = [*spec.key[:-1], "" if of_rewards else spec.key[-1]]
    return identity_digest([key, of_rewards or spec.stage, config, [ref.identity() for ref in spec.inputs]])


def _of_rolling(artifacts: Mapping[str, Artifact], store: Store) -> dict[str, str]:
    """What rolling checkpoints need. They have a folder of their own, so no purge takes them."""
    rolling = read_all(replace(store, root=f"{store.root.rstrip('/')}/{ROLLING}", logged=False))
    rollouts = rollouts_in(each.manifest for each in artifacts.values())
    return {
        address: f"the run can resume from {each.name}"
        for each in rolling.values()
        for address in needs(each.manifest, rollouts)
    }


def _may_still_commit(store: Store, summary: StepSummary) -> bool:
    """Whether it runs, or its job continues although the step that launched it was stopped."""
    return summary.state == "running" or (summary.state == "interrupted" and store.open(summary.address) is None)


def _summary(store: Store, name: str) -> StepSummary | None:
    text = store.storage.read_text(name)
    return None if text is None else read_summary(text, store.storage.uri(name))
