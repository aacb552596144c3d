"""Sources that deduplication removes almost whole are named, with the share, the worst cluster and texts."""

from inputs import Texts, duplicates, edited, made, random_texts

from datakit.dedup.duplicates import DuplicatesConfig
from datakit.dedup.minhash import MinHashConfig
from datakit.removal_rates import check_removal_rates
from lineage.storage.digests import text_digest

SURE = MinHashConfig(bands=96, rows=1)
ORIGINALS = random_texts(3, 60, seed=51)
LONG = random_texts(1, 300, seed=52)[0]
HEALTHY = Texts("healthy", (*ORIGINALS, edited(ORIGINALS[1], seed=1)))
WIPED = Texts("wiped", (*(edited(LONG, seed=i) for i in range(8)), LONG, *random_texts(1, 60, seed=53)))


def test_a_wiped_out_source_is_named_with_its_share_the_worst_cluster_and_texts(tmp_path):
    artifact = made(tmp_path, duplicates((HEALTHY, WIPED), signed=SURE))
    counts = artifact.manifest.extra["duplicates"]["sources"]["wiped"]
    removed = counts["exact"] + counts["near"]
    assert (counts["documents"], removed) == (10, 8)
    (violation,) = check_removal_rates(artifact)
    assert violation.startswith(f"wiped: {removed} of 10 documents are removed ({removed / 10:.1%}, bound 75%)")
    kept = min(text_digest(text) for text in WIPED.texts[:9])
    assert f"its largest cluster took 8 for {kept} of wiped (" in violation and violation.count(LONG.split()[0]) >= 2


def test_a_source_that_is_copies_of_itself_is_wiped_out_too(tmp_path):
    """A text field that is the same in every record: normalization leaves one document, which repeats nothing."""
    placeholder = Texts("placeholder", (*["licence text"] * 9, ORIGINALS[0]))
    (violation,) = check_removal_rates(made(tmp_path, duplicates((HEALTHY, placeholder), signed=SURE)))
    assert violation.startswith("placeholder: 9 of 10 documents are removed (90.0%, bound 75%); 8 are copies within the source")
    assert f"its largest cluster took 1 for {text_digest(ORIGINALS[0])} of healthy" in violation
    alone = Texts("alone", ("licence text",) * 9)
    (violation,) = check_removal_rates(made(tmp_path / "alone", duplicates((alone,), signed=SURE)))
    assert violation.startswith("alone: 8 of 9 documents") and violation.endswith("has some)")


def test_the_bound_is_the_scopes(tmp_path):
    artifact = made(tmp_path, duplicates((HEALTHY, WIPED), DuplicatesConfig(max_removed_share=1.0), SURE))
    assert check_removal_rates(artifact) == []
    strict = made(tmp_path, duplicates((HEALTHY, WIPED), DuplicatesConfig(max_removed_share=0.2), SURE))
    assert [violation.split(":")[0] for violation in check_removal_rates(strict)] == ["healthy", "wiped"]


def test_a_source_without_duplicates_passes(tmp_path):
    assert check_removal_rates(made(tmp_path, duplicates((Texts("a", tuple(ORIGINALS)),)))) == []
