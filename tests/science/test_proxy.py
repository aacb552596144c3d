"""Verdicts on corpora: planted differences by pairs of equal runs, what each run reads, and sets that are refused."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from scored import Score, made, write_score

from lineage.artifact.store import Artifact
from lineage.build.nodes import Node
from lineage.stage import Stage
from lineage.writing.writer import Writer
from marin_assets.describe import recorded
from science.in_pairs import RefusedPairsError
from science.proxy_stage import PROXY, ProxyConfig
from tests.trainer.tiny_run import RUN
from trainer.spec.config import RunSpec
from trainer.spec.stage import CheckpointConfig
from trainer.spec.target import size_of

SEEDS = (0, 1, 2)
CONFIG = ProxyConfig(("before", "after"), SEEDS, ("held-out",), "loss", "nats", max_epochs=4.0)
LOSSES = {
    ("before", 0): 3.0,
    ("before", 1): 3.4,
    ("before", 2): 3.2,
    ("after", 0): 2.9,
    ("after", 1): 3.301,
    ("after", 2): 3.099,
}
TOKENS = size_of(RUN).tokens


@dataclass(frozen=True)
class Cache:
    """A token cache of one source."""

    text: str
    tokens: int


@dataclass(frozen=True)
class Text:
    """Held-out text."""

    name: str


def write_cache(out: Writer, config: Cache) -> None:
    out.extra["tokens"] = {"component": "web", "num_tokens": config.tokens, "tokenizer": "t"}
    (out.folder / "tokens").write_text(config.text)


def write_mixture(out: Writer, config: Text, caches: tuple[Artifact, ...]) -> None:
    out.extra["mixture"] = {"phases": [{"weights": {"web": 1.0}}]}
    (out.folder / "mixture").write_text("")


def write_text(out: Writer, config: Text) -> None:
    (out.folder / "text").write_text(config.name)


def write_trial(out: Writer, config: CheckpointConfig, mixture: Artifact, start: Artifact | None = None) -> None:
    (out.folder / "weights").write_text(config.run.name)


def write_result(out: Writer, config: Score, trial: Artifact, corpora: tuple[Artifact, ...]) -> None:
    write_score(out, config, trial)


CACHE, MIXTURE = Stage("tests.cache", "1", write_cache), Stage("tests.mixture", "1", write_mixture)
TRIAL, TEXT = Stage("tests.trial", "1", write_trial), Stage("tests.text", "1", write_text)
SCORED = Stage("tests.scored", "1", write_result)


def run(
    corpus: str,
    seed: int,
    *,
    score: Score | None = None,
    spec: RunSpec = RUN,
    tokens: int = TOKENS,
    text: str = "t",
    read: str = "",
    start: str | None = None,
) -> Node:
    spec = replace(spec, name=f"s{seed}", seed=spec.seed + seed)
    cache = Node(("caches", read or corpus), f"{tokens}", CACHE, Cache(read or corpus, tokens))
    inputs = {"mixture": Node(("mixtures", corpus), spec.name, MIXTURE, Text(""), {"caches": (cache,)})}
    if start is not None:
        inputs["start"] = Node(("starts", start), None, TEXT, Text(start))
    trial = Node(("trials", corpus), spec.name, TRIAL, CheckpointConfig(spec, spec.num_steps), inputs)
    held_out = Node(("corpus", text), "web", TEXT, Text(text))
    of_trial = {"trial": trial, "corpora": (held_out,)}
    return Node(("results", corpus), spec.name, SCORED, score or Score(LOSSES[corpus, seed]), of_trial)


def verdict(**changed: Node) -> Node:
    """All runs, of which some are replaced by name, `<corpus>_s<seed>`."""
    nodes = tuple(changed.get(f"{corpus}_s{seed}", run(corpus, seed)) for corpus, seed in LOSSES)
    return Node(("proxies", "a", "verdict"), None, PROXY, CONFIG, {"results": nodes})


def test_a_better_corpus_is_found_by_pairs_although_seeds_differ_more(tmp_path: Path) -> None:
    artifact = made(tmp_path, verdict())
    facts = artifact.manifest.extra["proxy"]
    (row,) = facts["rows"]
    assert (row["corpus"], row["verdict"], row["pairs"]) == ("after", "better", 3)
    assert row["low"] < row["difference"] < row["high"] < 0 and row["smallest_visible"] < 0.1
    assert row["difference"] == pytest.approx(-0.1)
    assert facts["read"] == [{"corpus": name, "tokens": TOKENS, "epochs": 1.0} for name in ("before", "after")]
    page = artifact.file("proxy.md").read_text()
    assert "| after | held-out | better |" in page and "repeats" not in page
    assert recorded(artifact)["control"].value == "before"


def test_a_corpus_that_is_read_too_often_is_named(tmp_path: Path) -> None:
    few = {f"after_s{seed}": run("after", seed, tokens=TOKENS // 5) for seed in SEEDS}
    artifact = made(tmp_path, verdict(**few))
    assert [round(each["epochs"], 1) for each in artifact.manifest.extra["proxy"]["read"]] == [1.0, 5.0]
    page = artifact.file("proxy.md").read_text()
    assert page.count("more than 4 times: the verdict may be about repeats") == 1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"after_s1": run("after", 1, text="u")}, "the results are scored on 2 sets of held-out text; score all on one corpus"),
        (
            {"after_s1": run("after", 1, spec=replace(RUN, num_steps=RUN.num_steps + 1))},
            r"results/before\[s1\] and results/after\[s1\] are a pair of unequal runs; give both one spec",
        ),
        (
            {"after_s0": run("after", 0, read="before")},
            "after has the text of before: their filters drop the same documents, so there is nothing to compare",
        ),
        ({"after_s1": run("after", 1, start="b")}, r"\[s1\] starts from a checkpoint"),
        ({"before_s0": run("before", 0, score=Score(3.0, diverged="planted"))}, "of the control, diverged: planted"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused(tmp_path: Path, changed: dict[str, Node], message: str) -> None:
    with pytest.raises(RefusedPairsError, match=message):
        made(tmp_path, verdict(**changed))


def test_a_number_of_results_other_than_pairs_is_refused(tmp_path: Path) -> None:
    five = replace(verdict(), inputs={"results": tuple(run(corpus, seed) for corpus, seed in list(LOSSES)[:5])})
    with pytest.raises(RefusedPairsError, match="there are 5 results for 2 corpora x 3 seeds"):
        made(tmp_path, five)
