"""Keys that recipes have changed: the key that an artifact of an older checkout has today (`./marin upgrade`)."""

from datakit.dedup.minhash import MINHASH, PRESETS
from lineage.artifact.spec import ArtifactSpec
from lineage.config import to_jsonable
from recipes.records.data import DEFAULT_PRESET


def key_today(spec: ArtifactSpec) -> tuple[str, ...]:
    """Return the key that an artifact has today; most keys have not changed.

    - Until 2026-11-23 MinHash signatures of every preset had one key, `.../datakit/minhash`. A preset that is not the default
      now has a key of its own, `.../datakit/minhash-20x5`. The source follows in the key of a ferry.
    """
    if spec.stage == MINHASH.name:
        return _minhash_key(spec)
    return spec.key


def _minhash_key(spec: ArtifactSpec) -> tuple[str, ...]:
    preset = next((name for name, config in PRESETS.items() if to_jsonable(config) == dict(spec.config)), DEFAULT_PRESET)
    if preset == DEFAULT_PRESET:
        return spec.key
    for end in (len(spec.key), len(spec.key) - 1):
        if spec.key[max(end - 2, 0) : end] == ("datakit", "minhash"):
            return (*spec.key[: end - 1], f"minhash-{preset}", *spec.key[end:])
    return spec.key
