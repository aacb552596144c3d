"""What an artifact needs from its store: its inputs, and the rollouts that a checkpoint learned from.

The job of a run on rewards commits rollouts beside its checkpoints, so they are no inputs of them. A checkpoint lists them by
partition and data version (`post_training.train`). Without them the run cannot be resumed and the checkpoint not be audited.
"""

from collections.abc import Collection, Iterable, Mapping

from lineage.artifact.manifest import Manifest

REWARD_CHECKPOINT = "post_training.checkpoint"
ROLLOUTS = "post_training.rollouts"

type Bytes = tuple[tuple[str, ...], str | None, str]
"""Key, partition and data version."""


def learned_from(manifest: Manifest) -> list[Bytes]:
    """Return the rollouts that a checkpoint lists; none for any other artifact."""
    facts = manifest.extra.get("checkpoint")
    listed = facts.get("rollouts") if isinstance(facts, Mapping) and manifest.spec.stage == REWARD_CHECKPOINT else None
    if not isinstance(listed, Mapping):
        return []
    return [((*manifest.spec.key[:-1], "rollouts"), str(partition), str(version)) for partition, version in listed.items()]


def rollouts_in(manifests: Iterable[Manifest]) -> dict[Bytes, list[str]]:
    """Return the addresses of rollouts by what checkpoints list them by."""
    shards: dict[Bytes, list[str]] = {}
    for manifest in manifests:
        if manifest.spec.stage == ROLLOUTS:
            shards.setdefault(bytes_of(manifest), []).append(manifest.spec.address)
    return shards


def needs(manifest: Manifest, rollouts: Mapping[Bytes, Collection[str]]) -> list[str]:
    """Return the addresses of what an artifact needs. `rollouts`: those that there are (`rollouts_in`)."""
    inputs = [ref.address for ref in manifest.spec.inputs]
    return inputs + [address for listed in learned_from(manifest) for address in rollouts.get(listed, ())]


def bytes_of(manifest: Manifest) -> Bytes:
    """Return what identifies the bytes of an artifact: key, partition and data version."""
    return (manifest.spec.key, manifest.spec.partition, manifest.data_version)
