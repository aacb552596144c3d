"""A swarm as artifacts: table, signal to noise, surrogates, proposal, chosen mixtures and confirmation, on a known surface.

Caches and mixtures are real; what a run would lose is a function of its mixture's weights and its seed.
"""

import json
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, resolve
from lineage.build.plan import build_all
from lineage.order.chosen import CHOSEN_MIXTURE, WEIGHTS, ChosenMixtureConfig
from lineage.order.mixture import MIXTURE, MixtureConfig, Phase
from lineage.order.order import DataOrder
from lineage.order.token_shards import tokens_extra, write_token_shard
from lineage.stage import Stage
from lineage.writing.writer import Writer
from science.mixtures.confirmation_stage import SWARM_CONFIRMATION, ConfirmationConfig, Fresh
from science.mixtures.designs import swarm
from science.mixtures.earlier import Split
from science.mixtures.fit_stage import SWARM_FIT, SwarmFitConfig
from science.mixtures.next_round import NextMixtures
from science.mixtures.next_round_stage import SWARM_NEXT_ROUND, NextRoundConfig, trial_names
from science.mixtures.proposal_stage import PROPORTIONAL, PROPOSAL, SWARM_PROPOSAL, UNIFORM, NoSignalError, SwarmProposalConfig
from science.mixtures.runs import SWARM_RUNS, Designed, SwarmRunsConfig, read_runs
from science.mixtures.snr_stage import SWARM_SNR, SnrConfig
from tests.trainer.tiny_run import RUN
from trainer.spec.stage import CheckpointConfig

SOURCES = (("code", 6000), ("prose", 3000), ("web", 1000))
SEARCH = SwarmProposalConfig(SOURCES, 5000, 4.0)
TARGETS, METRIC, NOISE = ("poems", "noise"), "loss", 0.002
FRESH = tuple(range(900, 906))


@dataclass(frozen=True)
class Counted:
    """A cache of so many tokens."""

    name: str
    tokens: int


def write_cache(out: Writer, config: Counted) -> None:
    documents = [(f"{i:032x}", np.arange(100) % 7) for i in range(config.tokens // 100)]
    shard = write_token_shard(out.folder, "s", documents, "uint16")
    out.extra["tokens"] = tokens_extra(config.name, "uint16", 50, "tok", None, None, [shard])


def pretend(out: Writer, config: CheckpointConfig, mixture: Artifact) -> None:
    """What training would leave: a file."""
    (out.folder / "model").write_text(f"{config.run.name} {config.run.seed} {mixture.data_version}")


@dataclass(frozen=True)
class Policy:
    """Which policy scores a trial, and whether the trial diverged."""

    name: str = "p"
    diverged: bool = False


def score(out: Writer, config: Policy, trial: Artifact) -> None:
    """Prose lowers the loss on poems; the other target is nothing but noise."""
    phases = trial.input("mixture").manifest.extra["mixture"]["phases"]
    weights, total = phases[0]["weights"], sum(phases[0]["weights"].values())
    random = np.random.default_rng(trial.spec.config["run"]["seed"])
    poems = 3 - 0.8 * np.sqrt(weights["prose"] / total) + 0.2 * weights["web"] / total + random.normal(0, NOISE)
    values = {"poems": float(poems), "noise": 2 + float(random.normal(0, NOISE))}
    scores = [] if config.diverged else [{"task": name, "metric": METRIC, "value": value} for name, value in values.items()]
    out.extra["result"] = {"scores": scores, "policy": config.name, "diverged": "planted" if config.diverged else None}
    (out.folder / "result.json").write_text(json.dumps(out.extra["result"]))


CACHE, TRIAL, RESULT = (
    Stage("tests.counted", "1", write_cache),
    Stage("tests.pretended", "1", pretend),
    Stage("tests.scored_swarm", "1", score),
)
CACHES = tuple(Node(("cache", name), None, CACHE, Counted(name, tokens)) for name, tokens in SOURCES)


def result_of(name: str, mixture: Node, seed: int, policy: Policy | None = None, room: str = "trial") -> Node:
    config = CheckpointConfig(replace(RUN, name=name, seed=seed), RUN.num_steps)
    trial = Node(("swarm", room), name, TRIAL, config, {"mixture": mixture})
    return Node(("swarm", f"{room}-result"), name, RESULT, policy or Policy(), {"trial": trial})


def declared(name: str, weights: np.ndarray, seed: int, policy: Policy | None = None) -> Node:
    phase = Phase(0, {source: float(share) for (source, _), share in zip(SOURCES, weights, strict=True)})
    mixture = Node(("swarm", "mixture"), name, MIXTURE, MixtureConfig(name, (phase,), seed), {"caches": CACHES})
    return result_of(name, mixture, seed, policy)


@cache
def designed() -> list[tuple[Designed, np.ndarray]]:
    """16 designs, and three repeats at two anchors."""
    rows = [(Designed(f"d{i:02d}", i), weights) for i, weights in enumerate(swarm(SEARCH.proportional, SEARCH.limits, 16, 0))]
    for place, (anchor, weights) in enumerate(SEARCH.contenders().items()):
        rows += [(Designed(f"{anchor}-{n}", 100 + 10 * place + n, anchor), weights) for n in range(3)]
    return rows


def table(results: tuple[Node, ...] | None = None, sources: tuple[tuple[str, int], ...] = SOURCES) -> Node:
    rows = designed()
    every = results or tuple(declared(of.name, weights, of.seed) for of, weights in rows)
    config = SwarmRunsConfig(tuple(of for of, _ in rows), sources, TARGETS, METRIC)
    return Node(("swarm", "table"), None, SWARM_RUNS, config, {"results": every})


PARTS = {"code": 4000, "notebooks": 2000}
"""What the source `code` is split into."""


def later(change: dict[str, int] | None = None, splits: tuple[Split, ...] | None = None, policy: Policy | None = None) -> Node:
    """The table of a later swarm of two trials, with the runs of the earlier one."""
    sources = tuple((PARTS | {"prose": 3000, "web": 1000} | (change or {})).items())
    caches = tuple(Node(("later", "cache", name), None, CACHE, Counted(name, tokens)) for name, tokens in sources)
    results = []
    for number in range(2):
        phase = Phase(0, {name: 1.0 + number for name, _ in sources})
        mixture = Node(("later", "mixture"), f"l{number}", MIXTURE, MixtureConfig("l", (phase,), number), {"caches": caches})
        results.append(result_of(f"l{number}", mixture, number, policy, room="later"))
    trials = tuple(Designed(f"l{number}", number) for number in range(2))
    split = (Split("code", ("code", "notebooks")),) if splits is None else splits
    config = SwarmRunsConfig(trials, sources, TARGETS, METRIC, split)
    return Node(("later", "table"), None, SWARM_RUNS, config, {"results": tuple(results), "earlier": table()})


def snr(of: Node) -> Node:
    return Node(("swarm", "snr"), None, SWARM_SNR, SnrConfig(), {"table": of})


@cache
def proposal(config: SwarmProposalConfig = SEARCH, name: str = "proposal") -> Node:
    return Node(("swarm", name), None, SWARM_PROPOSAL, config, {"table": table(), "snr": snr(table())})


def fresh(choice: str, seed: int, of: Node | None = None) -> Node:
    name = f"{choice}-s{seed}"
    inputs = {"caches": CACHES, "weights": of or proposal()}
    mixture = Node(("swarm", "fresh-mixture"), name, CHOSEN_MIXTURE, ChosenMixtureConfig(name, choice, seed), inputs)
    return result_of(name, mixture, seed, room="fresh")


NEXT = NextMixtures(6)


def second(search: SwarmProposalConfig = SEARCH, name: str = "second") -> Node:
    config = NextRoundConfig(NEXT, search)
    return Node(("swarm", name), None, SWARM_NEXT_ROUND, config, {"table": table(), "snr": snr(table())})


def both_rounds() -> Node:
    """The table of both rounds: the mixtures of the second are chosen by the artifact of the first."""
    rows, results = designed(), []
    results += [declared(of.name, weights, of.seed) for of, weights in rows]
    more = [Designed(name, 200 + number) for number, name in enumerate(trial_names(NEXT))]
    for each in more:
        chosen = ChosenMixtureConfig(each.name, each.name, each.seed)
        inputs = {"caches": CACHES, "weights": second()}
        mixture = Node(("swarm", "second-mixture"), each.name, CHOSEN_MIXTURE, chosen, inputs)
        results.append(result_of(each.name, mixture, each.seed, room="second"))
    config = SwarmRunsConfig((*(of for of, _ in rows), *more), SOURCES, TARGETS, METRIC)
    return Node(("swarm", "both"), None, SWARM_RUNS, config, {"results": tuple(results)})


def confirmation(results: dict[tuple[str, int], Node] | None = None) -> Node:
    every = {(choice, seed): fresh(choice, seed) for choice in (PROPOSAL, PROPORTIONAL, UNIFORM) for seed in FRESH}
    every |= results or {}
    runs = tuple(Fresh(f"{choice}-s{seed}", choice, seed) for choice, seed in every)
    inputs = {"proposal": proposal(), "results": tuple(every.values())}
    return Node(("swarm", "confirmation"), None, SWARM_CONFIRMATION, ConfirmationConfig(runs, METRIC), inputs)


def made(store: Store, node: Node) -> Artifact:
    return build_all(store, [node])[0]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    root = Store(str(tmp_path_factory.mktemp("swarm") / "store"))
    made(root, proposal())
    return root


def test_the_table_holds_what_the_mixtures_and_results_say(store: Store) -> None:
    runs = read_runs(resolve(store, table()))
    wanted = designed()
    assert runs.names == tuple(of.name for of, _ in wanted) and runs.sources == ("code", "prose", "web")
    np.testing.assert_allclose(runs.weights, [weights / weights.sum() for _, weights in wanted])
    assert (
        runs.losses["poems"][0] == made(store, declared("d00", wanted[0][1], 0)).manifest.extra["result"]["scores"][0]["value"]
    )
    assert {anchor: len(losses) for anchor, losses in runs.repeats("poems").items()} == {PROPORTIONAL: 3, UNIFORM: 3}


def test_runs_of_an_earlier_swarm_count_after_a_source_was_split(store: Store) -> None:
    before, after = read_runs(resolve(store, table())), read_runs(made(store, later()))
    assert after.sources == ("code", "notebooks", "prose", "web") and len(after.names) == 2 + len(before.names)
    assert after.names[2] == "earlier/d00" and after.losses["poems"][2:].tolist() == before.losses["poems"].tolist()
    code, notebooks = after.weights[2:, 0], after.weights[2:, 1]
    np.testing.assert_allclose(code, 2 * notebooks)
    np.testing.assert_allclose(np.column_stack([code + notebooks, after.weights[2:, 2:]]), before.weights)
    assert set(after.repeats("poems")) == {f"earlier/{anchor}" for anchor in (PROPORTIONAL, UNIFORM)}


def test_an_earlier_swarm_that_says_nothing_of_the_sources_is_refused(store: Store) -> None:
    whole = (Split("code", ("code",)),)
    cases = [
        (later({"notebooks": 2100}), r"code of swarm/table has 6,000 tokens, its parts code, notebooks have 6,100"),
        (later({"web": 1100}), "source web has other bytes than in swarm/table"),
        (later(splits=whole), "code of swarm/table has 6,000 tokens, its parts code have 4,000"),
        (later(splits=(Split("code", ("code", "tests")),)), "is tests now, which the swarm has not"),
        (later(splits=(Split("books", ("a", "b")),)), "has no source books that could be split"),
        (later(policy=Policy("q")), "scored by another policy"),
    ]
    for node, message in cases:
        with pytest.raises(ValueError, match=message):
            made(store, node)


def test_a_target_of_noise_alone_does_not_decide(store: Store) -> None:
    ratios = {row["target"]: row["ratio"] for row in resolve(store, snr(table())).manifest.extra["snr"]["targets"]}
    assert ratios["poems"] > 10 > 2 > ratios["noise"]
    facts = resolve(store, proposal()).manifest.extra["proposal"]
    assert facts["targets"] == ["poems"] and set(facts["left_out"]) == {"noise"}


def test_targets_of_noise_alone_are_refused(store: Store) -> None:
    strict = proposal(replace(SEARCH, search=replace(SEARCH.search, min_snr=1e6)), "strict")
    with pytest.raises(NoSignalError, match=r"no target of swarm/table has a signal to noise of at least 1000000.0: poems"):
        made(store, strict)


def test_the_proposal_takes_what_helps_and_is_confirmed_by_fresh_seeds(store: Store) -> None:
    weights = resolve(store, proposal()).manifest.extra[WEIGHTS]
    assert weights[PROPOSAL]["prose"] > 0.8 and weights[PROPORTIONAL]["prose"] == 0.3
    facts = made(store, confirmation()).manifest.extra["confirmation"]
    assert {row["contender"]: row["verdict"] for row in facts["verdicts"]} == {PROPORTIONAL: "beats", UNIFORM: "beats"}
    truth = 0.8 * (np.sqrt(weights[PROPOSAL]["prose"]) - np.sqrt(0.3)) + 0.2 * (0.1 - weights[PROPOSAL]["web"])
    assert facts["verdicts"][0]["gain"] == pytest.approx(truth, abs=0.005)
    page = resolve(store, confirmation()).file("confirmation.md").read_text()
    assert "The proposal **beats** the proportional mixture" in page


def test_a_second_round_is_chosen_from_the_first_and_both_make_the_proposal(store: Store) -> None:
    chosen = made(store, second())
    facts, weights = chosen.manifest.extra["round"], chosen.manifest.extra[WEIGHTS]
    assert list(weights) == [each["name"] for each in facts["trials"]] == list(trial_names(NEXT))
    assert facts["targets"] == ["poems"] and facts["known"] == len(designed())
    assert facts["table"] == resolve(store, table()).data_version
    prose = [shares["prose"] for shares in weights.values()]
    assert max(prose) > 0.8 and np.mean(prose) > 0.6 > np.mean([row[1] for _, row in designed()])
    limits = dict(zip(dict(SOURCES), SEARCH.limits, strict=True))
    assert all(share <= limits[name] + 1e-4 for shares in weights.values() for name, share in shares.items())
    assert "| optimum of round one |" in chosen.file("round.md").read_text()

    runs = read_runs(made(store, both_rounds()))
    assert runs.names[-6:] == trial_names(NEXT) and set(runs.anchors[-6:]) == {""}
    np.testing.assert_allclose(runs.weights[-6:], [list(shares.values()) for shares in weights.values()], atol=1e-3)
    last = Node(("swarm", "after"), None, SWARM_PROPOSAL, SEARCH, {"table": both_rounds(), "snr": snr(table())})
    promise = made(store, last).manifest.extra["proposal"]
    assert promise["runs"] == len(designed()) + 6 and set(range(200, 206)) < set(promise["seeds"])
    ancestors = {artifact.spec.address for artifact in store.walk_up(resolve(store, last))}
    assert {resolve(store, node).spec.address for node in (table(), second())} <= ancestors


def test_a_second_round_without_a_target_that_decides_is_refused(store: Store) -> None:
    strict = second(replace(SEARCH, search=replace(SEARCH.search, min_snr=1e6)), "strict-second")
    with pytest.raises(NoSignalError, match=r"no target of swarm/table has a signal to noise of at least 1000000.0: poems"):
        made(store, strict)


def test_the_mixture_of_a_fresh_run_has_the_proposal_in_its_lineage(store: Store) -> None:
    made(store, confirmation())
    mixture = resolve(store, fresh(PROPOSAL, FRESH[0])).input("trial").input("mixture")
    chosen = resolve(store, proposal())
    assert mixture.manifest.extra["mixture"]["phases"][0]["weights"] == chosen.manifest.extra[WEIGHTS][PROPOSAL]
    assert mixture.input("weights").data_version == chosen.data_version
    order = DataOrder.open(mixture, 10)
    assert order.names == ("code", "prose", "web") and [cache.component for cache in order.caches] == list(order.names)


def test_surrogates_predict_better_than_the_mean(store: Store) -> None:
    node = Node(("swarm", "fit"), None, SWARM_FIT, SwarmFitConfig(("log_linear", "quadratic")), {"table": table()})
    rows = {row["target"]: row for row in made(store, node).manifest.extra["fit"]["targets"]}
    assert min(rows["poems"]["errors"].values()) < rows["poems"]["spread"] / 3


def test_runs_that_cannot_confirm_are_refused(store: Store) -> None:
    other = proposal(replace(SEARCH, max_epochs=1.0), "other")
    cases = [
        ({(PROPOSAL, 900): fresh(PROPOSAL, 900, other)}, "the confirmation wants"),
        ({(PROPOSAL, 900): fresh(PROPORTIONAL, 900)}, "no result of proposal-s900"),
        ({(choice, 3): fresh(choice, 3) for choice in (PROPOSAL, PROPORTIONAL, UNIFORM)}, r"used before: \[3\]"),
        ({(PROPOSAL, 907): fresh(PROPOSAL, 907)}, "confirmation against"),
    ]
    for changed, message in cases:
        with pytest.raises(ValueError, match=message):
            made(store, confirmation(changed))


def test_a_table_that_would_mislead_is_refused(store: Store) -> None:
    rows = designed()
    every = tuple(declared(of.name, weights, of.seed) for of, weights in rows)
    mixed = (declared(rows[0][0].name, rows[0][1], rows[0][0].seed, Policy("q")), *every[1:])
    cases = [
        (table(every[1:]), "no result of d00"),
        (table(mixed), "the results have 2 policies"),
        (table(sources=(("code", 5000), *SOURCES[1:])), "source code has 6000 tokens, the swarm declares 5000"),
        (table(sources=SOURCES[:2]), "its mixture reads web, which the swarm does not declare"),
    ]
    for node, message in cases:
        with pytest.raises(ValueError, match=message):
            made(store, node)


def test_a_trial_that_diverged_is_left_out_and_named(store: Store) -> None:
    rows = designed()
    every = tuple(declared(of.name, weights, of.seed, Policy(diverged=of.name == "d01")) for of, weights in rows)
    artifact = made(store, table(every))
    assert artifact.manifest.extra["swarm"]["diverged"] == ["d01"]
    assert "d01" not in read_runs(artifact).names and len(read_runs(artifact).names) == len(rows) - 1


def test_weights_that_an_artifact_does_not_hold_are_named(store: Store) -> None:
    node = fresh("best", 900)
    with pytest.raises(ValueError, match="chooses no weights named 'best'; it has proportional, proposal, uniform"):
        made(store, node)
