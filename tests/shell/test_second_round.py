"""A swarm's second round through the sensor: mixtures that the first round chooses, real trials, a proposal from both."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import dagster as dg
import numpy as np
import pytest
from small_runs import small_corpus, small_run
from test_searches import World

from lineage.artifact.store import Store
from lineage.build.nodes import ancestors_first, resolve, spec_of
from lineage.build.plan import build, build_all
from lineage.config import to_jsonable
from lineage.order.chosen import WEIGHTS
from lineage.storage.digests import identity_digest
from lineage.writing.write import writing
from marin_assets.declared_table import tabled
from recipes.lab import Declarations
from recipes.records.run import Run
from recipes.records.tokens import Mix, Tokens, TrainedTokenizer
from recipes.swarms import Swarm, every_run, proposal, second_proposal, snr
from recipes.sweeps import RESULT_CONFIG, result, results, trial
from recipes.tokenized import token_cache
from resources.lab import LabResource
from science.mixtures.next_round import NextMixtures
from science.mixtures.proposal_stage import SwarmProposalConfig
from science.mixtures.runs import read_runs

SOURCES = ("vendored_prose", "python_topics")
TOKENS = Tokens("small-bpe1k", small_corpus(*SOURCES), TrainedTokenizer("bpe1k", vocab_size=1024))
TARGET = "prose/vendored_prose"
DESIGNS = ((0.9, 0.1), (0.7, 0.3), (0.5, 0.5), (0.3, 0.7), (0.2, 0.8), (0.1, 0.9))


def base() -> Run:
    """Four steps over two sources."""
    run = small_run("base", *SOURCES)
    spec = replace(run.spec, num_steps=4, save_every_steps=None, schedule=replace(run.spec.schedule, warmup_steps=1))
    return replace(run, data=Mix("two", TOKENS, block_size=8), spec=spec)


def swarm(tokens: tuple[int, ...] = (1000, 1000)) -> Swarm:
    """Six designs and two repeats at two anchors; two trials in the second round."""
    search = SwarmProposalConfig(tuple(zip(SOURCES, tokens, strict=True)), min(tokens), 4.0)
    return Swarm("two", base(), DESIGNS, (TARGET,), search, repeats=2, second=NextMixtures(2))


def counted(store: Store) -> Swarm:
    """The swarm with the token counts of its caches."""
    caches = (resolve(store, token_cache(TOKENS, source)) for source in SOURCES)
    return swarm(tuple(cache.manifest.extra["tokens"]["num_tokens"] for cache in caches))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[tuple[World, Swarm]]:
    """A lab whose first round has results, which were written and not trained; everything after them is made for real."""
    store = LabResource(root=str(tmp_path), workers=1).lab().store
    build_all(store, [token_cache(TOKENS, source) for source in SOURCES])
    of = counted(store)
    for node in ancestors_first(results(of.trials)):
        if node.stage.job is None:
            build(store, node)
    policy, random = identity_digest(to_jsonable(RESULT_CONFIG)), np.random.default_rng(0)
    for run in of.trials.trials:
        share = dict(run.data.phases[0].weights)["vendored_prose"]
        with writing(store, spec_of(store, trial(run))):
            pass
        value = 7 - 2 * np.sqrt(share) + float(random.normal(0, 0.01))
        score = {"task": f"heldout/{TARGET}", "metric": "bits_per_byte", "value": value}
        with writing(store, spec_of(store, result(run))) as out:
            out.extra["result"] = {"policy": policy, "diverged": None, "scores": [score]}
    with dg.instance_for_test() as instance:
        yield World(tmp_path, instance, Declarations(swarms=(of,))), of


@pytest.mark.slow
def test_a_swarm_goes_through_its_second_round_by_the_sensor(world: tuple[World, Swarm]) -> None:
    lab, of = world
    assert lab.step() == "two waits for swarms/two/table"
    assert lab.make(dg.AssetKey(["swarms", "two", "table"])).success
    assert lab.step() == "second:proposal"
    chosen = resolve(lab.store, second_proposal(of)).manifest.extra[WEIGHTS]
    assert max(shares["vendored_prose"] for shares in chosen.values()) > 0.8, "prose lowers the loss that was written"
    assert lab.step() == "second:result"
    for run in of.second_trials.trials:
        read = resolve(lab.store, trial(run)).input("mixture")
        assert read.manifest.extra["mixture"]["phases"][0]["weights"] == chosen[run.name]
    assert lab.step() == "second:table"
    assert lab.step() == "two has had its second round"
    runs = read_runs(resolve(lab.store, every_run(of)))
    assert runs.names[-2:] == ("t00", "t01") and len(runs.names) == 12
    promised = resolve(lab.store, proposal(of))
    assert promised.manifest.extra["proposal"]["runs"] == 12
    above = {artifact.spec.address for artifact in lab.store.walk_up(promised)}
    before = (snr(of), second_proposal(of), *(trial(run) for run in of.second_trials.trials))
    assert {resolve(lab.store, node).spec.address for node in before} <= above


def test_a_second_round_adds_five_assets_and_a_sensor() -> None:
    one, _ = tabled(Declarations(swarms=(replace(swarm(), second=None),)))
    two, kept = tabled(Declarations(swarms=(swarm(),)))
    more = {each.example.key for each in two} - {each.example.key for each in one}
    assert more == {("swarms", "two", "second", name) for name in ("proposal", "mixture", "trial", "result", "table")}
    assert kept.broken == ()
