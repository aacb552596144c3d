"""Rollouts by a server in vLLM's form: what its answers name is recorded, and an age without a bound is refused or declared."""

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path

import polars as pl
import pytest
import vllm_stub
from small_rewards import BYTES, learner, node, store_at

from lineage.artifact.store import Artifact, Store
from lineage.build.plan import build, build_all
from lineage.jobs.job import LaunchRecord, LaunchRequest, read_job
from post_training import checks
from post_training.rollouts import UNKNOWN_POLICY
from post_training.spec import RewardRunSpec, SamplingConfig
from post_training.stage import ROLLOUTS_FILE
from post_training.train import train_on_rewards
from serving.answer_versions import named_version, named_weights
from serving.server.following import newest_of
from trainer.running import Running

pytestmark = pytest.mark.usefixtures("quick_compilation")

ITERATIONS = 2
DEFAULT = {"system_fingerprint": "vllm-0.19.0-tp8-a3b21f94"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, quick_compilation: None) -> Store:
    """A store with everything that the runs start from."""
    store = store_at(tmp_path_factory.mktemp("unnamed"))
    build_all(store, node(learner()).parents(), launcher=lambda launch: trained(launch, ""))
    return store


def trained(launch: LaunchRequest, url: str) -> LaunchRecord:
    train_on_rewards(read_job(launch.job_path), Running(rollouts=url))
    return LaunchRecord("this process", "", ())


@contextmanager
def vllm(log: Path, stated: Callable[[], Mapping[str, str]]) -> Iterator[str]:
    """A server on loopback that answers any prompt; yields its URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), vllm_stub.handler(log, BYTES, stated)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def run(store: Store, folder: Path, spec: RewardRunSpec, stated: Callable[[], Mapping[str, str]]) -> Artifact:
    """Train on the answers of such a server."""
    with vllm(folder / "asked.jsonl", stated) as url:
        return build(store, node(spec), launcher=lambda launch: trained(launch, url)).artifact


def asynchronous(name: str, **changes: object) -> RewardRunSpec:
    own = replace(learner(ITERATIONS).run, name=name)
    return learner(ITERATIONS, run=own, max_staleness=1, **changes)


def tables(checkpoint: Artifact) -> list[pl.DataFrame]:
    run = checkpoint.spec.key[1]
    shards = sorted(checkpoint.store.artifacts("runs", run, "rollouts"), key=lambda each: str(each.spec.partition))
    return [pl.read_parquet(each.file(ROLLOUTS_FILE)) for each in shards]


@pytest.mark.parametrize(
    ("answer", "weights", "version"),
    [
        ({"weights_version": {"digest": "d1", "step": 4}, "system_fingerprint": "d1+t"}, "d1", "d1+t"),
        ({"weights_version": None, "system_fingerprint": "d1", "model": "m"}, "d1", "d1"),
        ({"system_fingerprint": None, "model": "m@d1"}, "d1", "d1"),
        (DEFAULT | {"model": "m@d1"}, "d1", "d1"),
        (DEFAULT | {"model": "m"}, None, None),
        ({"system_fingerprint": "vllm-a3b21f94", "model": "m@"}, None, None),
        ({}, None, None),
    ],
)
def test_a_fingerprint_of_the_configuration_names_no_weights(answer: dict, weights: str | None, version: str | None) -> None:
    assert (named_weights(answer), named_version(answer)) == (weights, version)


@pytest.mark.parametrize("stated", [{}, DEFAULT], ids=["no fingerprint", "the default fingerprint"])
def test_answers_without_a_name_of_their_weights_stop_the_run(store: Store, tmp_path: Path, stated: dict) -> None:
    spec = asynchronous("refusing")
    with pytest.raises(RuntimeError, match=r"an answer names no weights .* so its age is unknown and max_staleness 1 cannot"):
        run(store, tmp_path, spec, lambda: stated)
    assert not list(store.artifacts("runs", "refusing", "rollouts")), "nothing of them is recorded as a rollout"


def test_a_run_that_says_so_trains_on_them_and_records_which_policies_are_unknown(store: Store, tmp_path: Path) -> None:
    """Every third answer names nothing; the others name the newest policy, as vLLM does that was started with it."""
    spec, turns = asynchronous("unnamed", unnamed_weights="train"), itertools.count()

    def stated() -> dict[str, str]:
        (folder,) = (store.scratch / "policies" / spec.run.name).iterdir()
        newest = newest_of(folder)
        assert newest is not None
        return [DEFAULT, {"system_fingerprint": newest.digest}, {"model": f"m@{newest.digest}"}][next(turns) % 3]

    checkpoint = run(store, tmp_path, spec, stated)
    read, of_iterations = tables(checkpoint), checks.facts_of(checkpoint)
    assert len(read) == len(of_iterations) == ITERATIONS
    for iteration, (table, facts) in enumerate(zip(read, of_iterations, strict=True)):
        unknown = table.filter(pl.col("policy_digest") == UNKNOWN_POLICY)
        known = table.filter(pl.col("policy_digest") != UNKNOWN_POLICY)
        assert 0 < len(unknown) < len(table) and unknown["policy_step"].null_count() == len(unknown)
        assert set(iteration - known["policy_step"].to_numpy() / spec.updates) <= {0.0, 1.0}
        assert facts["unknown_policies"] == len(unknown)
        assert (facts["staleness"], facts["most_staleness"]) == (None, None)
    outcome, why = checks.policies_are_known(checkpoint)
    assert outcome == "warn" and "completions in 2 of 2 iterations are of unknown policies" in why
    named = [facts | {"unknown_policies": 0} for facts in of_iterations]
    assert checks.judge_policies(named)[0] == "passed"


def test_log_probabilities_of_another_distribution_are_refused(store: Store, tmp_path: Path) -> None:
    """vLLM sends those of the model, which are not those of the sampler at another temperature."""
    spec = asynchronous("cold", unnamed_weights="train", sampling=SamplingConfig(8, 4, 4, temperature=0.7))
    with pytest.raises(ValueError, match="or at temperature 1 and top_p 1 servers with vLLM's fields"):
        run(store, tmp_path, spec, dict)


def test_only_the_asynchronous_path_may_take_unnamed_weights() -> None:
    with pytest.raises(ValueError, match=r"unnamed_weights is 'train'.*refuse with max_staleness 0"):
        learner(unnamed_weights="train")
    with pytest.raises(ValueError, match=r"unnamed_weights is 'maybe'.*refuse or train"):
        learner(max_staleness=1, unnamed_weights="maybe")
