"""A source whose documents are all duplicates stops a real Dagster run; the check names it."""

from pathlib import Path

import dagster as dg
from inputs import Texts, corpus, duplicates, edited, random_texts

from lineage.build.nodes import Node
from marin_assets.data_stages import REMOVAL_RATES
from marin_assets.factory import AssetTemplate, Invariant, family_asset
from resources.lab import LabResource

LONG = random_texts(1, 300, seed=52)[0]
HEALTHY = Texts("healthy", tuple(random_texts(3, 60, seed=51)))
WIPED = Texts("wiped", (*(edited(LONG, seed=i) for i in range(8)), LONG, *random_texts(1, 60, seed=53)))


def run(root: Path, scope: tuple[Texts, ...]) -> dg.ExecuteInProcessResult:
    """The duplicates of a scope and the corpus of its healthy source, as assets."""

    def family(node: Node, builds: tuple[str, ...], *checks: Invariant) -> AssetTemplate:
        named = "documents", node.name, frozenset[str]()
        return AssetTemplate(
            node, lambda lab, partition: node, lambda lab: lab.store, *named, invariants=checks, builds_inputs=builds
        )

    with dg.instance_for_test() as instance:
        return dg.materialize(
            [
                family_asset(family(duplicates(scope), ("normalized", "minhash"), REMOVAL_RATES)),
                family_asset(family(corpus(HEALTHY, scope), ("normalized", "contamination", "quality"))),
            ],
            resources={"lab": LabResource(root=str(root), workers=1)},
            instance=instance,
            raise_on_error=False,
        )


def test_a_wiped_out_source_blocks_the_corpora_of_its_scope(tmp_path: Path) -> None:
    blocked = run(tmp_path, (HEALTHY, WIPED))
    (check,) = blocked.get_asset_check_evaluations()
    assert (check.check_name, check.passed, check.blocking) == ("removal_rates", False, True)
    assert "wiped: 8 of 10 documents are removed" in str(check.description)
    started = {event.step_key for event in blocked.all_events if event.is_step_start}
    assert started == {"duplicates__scope"} and not list(tmp_path.glob("artifacts/corpus/**/manifest.json"))
    assert run(tmp_path, (HEALTHY,)).success and list(tmp_path.glob("artifacts/corpus/**/manifest.json"))
