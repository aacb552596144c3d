"""The declared swarm: designs within their caps, seeds that are fresh, keys that do not grow with the trials."""

from dataclasses import replace

import numpy as np
import pytest
from test_identities import by_key

from lineage.build.nodes import ancestors_first
from recipes.records.tokens import Mix
from recipes.runs import mixture
from recipes.studies.mixing import DESIGNS, MAX_EPOCHS, SOURCES, TARGET_TOKENS, prose_swarm
from recipes.studies.small_models import small_mix
from recipes.swarms import Chosen, confirmation, fit, proposal, second_proposal
from science.mixtures.designs import caps, swarm
from science.mixtures.next_round import NextMixtures


def test_the_declared_designs_are_those_of_the_sampler_within_the_caps() -> None:
    tokens = np.array([count for _, count in SOURCES], float)
    limits = caps(tokens, TARGET_TOKENS, MAX_EPOCHS)
    drawn = swarm(tokens / tokens.sum(), limits, len(DESIGNS), 0)
    np.testing.assert_allclose(np.array(DESIGNS), drawn, atol=0.004)  # three digits; the largest takes what rounding leaves
    assert (np.array(DESIGNS) <= limits + 0.001).all()
    np.testing.assert_allclose(np.sum(DESIGNS, axis=1), 1.0)


def test_a_swarm_has_a_few_keys_and_its_confirmation_stands_on_the_proposal() -> None:
    of = prose_swarm()
    every = ancestors_first([confirmation(of)])
    keys = {node.key for node in every if node.key[0] == "swarms"}
    assert keys == {
        ("swarms", "prose", name) for name in ("mixture", "trial", "result", "table", "snr", "proposal", "confirmation")
    } | {("swarms", "prose", "fresh", name) for name in ("mixture", "trial", "result")}
    fresh = [node for node in every if node.key == ("swarms", "prose", "fresh", "mixture")]
    assert len(fresh) == len(of.confirmation.trials) == 24
    assert all(node.inputs["weights"] == proposal(of) for node in fresh)
    assert not {run.spec.seed for run in of.confirmation.trials} & {run.spec.seed for run in of.trials.trials}


def test_a_second_round_leaves_the_first_as_it_is_and_all_after_it_stands_on_both() -> None:
    one, two = prose_swarm(), replace(prose_swarm(), second=NextMixtures(10))
    before, after = (by_key([fit(of), confirmation(of)]) for of in (one, two))
    later = {"fit", "proposal", "confirmation", "fresh/mixture", "fresh/trial", "fresh/result"}
    assert {key for key in before if before[key] != after[key]} == {f"swarms/prose/{name}" for name in later}
    added = {"second/proposal", "second/mixture", "second/trial", "second/result", "second/table"}
    assert after.keys() - before.keys() == {f"swarms/prose/{name}" for name in added}
    runs = two.second_trials.trials
    assert len(runs) == 10 and all(mixture(run).inputs["weights"] == second_proposal(two) for run in runs)
    seeds = {run.spec.seed for part in two.rounds for run in part.trials}
    assert len(seeds) == 38 + 10 and seeds.isdisjoint(two.fresh_seeds)
    with pytest.raises(ValueError, match="swarm prose has one round; set `second`"):
        second_proposal(one)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fresh_seeds": (0, 902, 903, 904, 905, 906)}, "give at least 6 that no trial has"),
        ({"fresh_seeds": (901, 902)}, "give at least 6 that no trial has"),
        ({"designs": DESIGNS[:7]}, "7 designs for 6 sources; give at least 8"),
        ({"designs": (*DESIGNS, (1.0,))}, "each with a weight for every source"),
    ],
)
def test_a_swarm_that_cannot_be_judged_is_refused(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(prose_swarm(), **change)


def test_a_source_that_the_tokens_lack_is_named() -> None:
    of = prose_swarm()
    search = replace(of.search, sources=(*SOURCES, ("novels", 5)))
    with pytest.raises(ValueError, match="novels is no source of tokens default-bpe1k"):
        replace(of, search=search, designs=tuple((*row, 0.0) for row in DESIGNS))


def test_a_mix_has_declared_or_chosen_weights() -> None:
    chosen = Mix("mine", small_mix().tokens, chosen=Chosen(prose_swarm()))
    with pytest.raises(ValueError, match="its weights are both declared and chosen by proposal"):
        replace(chosen, phases=prose_swarm().trials.trials[0].data.phases)
