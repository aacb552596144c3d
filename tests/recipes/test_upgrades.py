"""Keys of older checkouts: each artifact gets the key that today's recipes give it."""

import pytest

from datakit.dedup.minhash import MINHASH, PRESETS
from lineage.artifact.spec import ArtifactSpec
from lineage.config import to_jsonable
from recipes.upgrades import key_today


def signatures(preset: str, *key: str) -> ArtifactSpec:
    return ArtifactSpec(key, "p", MINHASH.name, "2", to_jsonable(PRESETS[preset]))


@pytest.mark.parametrize(
    ("preset", "key", "today"),
    [
        ("14x8", "datakit/minhash", "datakit/minhash"),
        ("20x5", "datakit/minhash", "datakit/minhash-20x5"),
        ("26x11", "datakit/minhash", "datakit/minhash-26x11"),
        ("20x5", "ferry/datakit/minhash/kjv", "ferry/datakit/minhash-20x5/kjv"),
        ("20x5", "ferry/datakit/minhash/minhash", "ferry/datakit/minhash-20x5/minhash"),
        ("14x8", "ferry/datakit/minhash/kjv", "ferry/datakit/minhash/kjv"),
    ],
)
def test_signatures_have_their_preset_in_the_key(preset: str, key: str, today: str) -> None:
    spec = signatures(preset, *key.split("/"))
    assert key_today(spec) == tuple(today.split("/"))
    assert key_today(signatures(preset, *key_today(spec))) == key_today(spec), "an upgraded key stays"


def test_other_artifacts_keep_their_keys() -> None:
    spec = ArtifactSpec(
        ("datakit", "minhash"), None, "tests.other", "1", {"bands": 20, "rows": 5, "ngram_words": 5, "seed": 42}
    )
    assert key_today(spec) == ("datakit", "minhash")
