"""The ledger of runs on rewards: rollouts, scores on held-out prompts, audits, and one bill for all that one job commits."""

import datetime
from decimal import Decimal
from pathlib import Path

import pytest
from ferry_costs import cost_by_hand
from random_lineage import write
from reward_worlds import checkpoint, environment, put, rollouts

from lineage.artifact.store import Store
from lineage.jobs.summary import summarizing
from operations.ledger.database import opened, query
from operations.ledger.ledger import open_ledger
from operations.ledger.manifests import process_of
from operations.ledger.questions import QUESTIONS
from recipes.prices import price_table


def ask(store: Store, sql: str) -> list[tuple]:
    with opened(open_ledger([store], price_table(), datetime.datetime.now(datetime.UTC).date())) as connection:
        return query(connection, sql).rows()


def test_each_iteration_has_a_row_with_policy_reward_and_use(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "lab"))
    prompts = environment(store)
    for iteration in range(2):
        rollouts(store, prompts, iteration)
    rows = ask(store, QUESTIONS["rollouts"].sql)
    assert [row[:4] for row in rows] == [("runs/sums", 0, "digest0", 0), ("runs/sums", 1, "digest1", 2)]
    assert [row[-3:] for row in rows] == [(0.25, 0.25, 30), (0.5, 0.25, 30)]


def test_rollouts_and_checkpoints_of_one_job_have_one_bill(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "lab"))
    prompts = environment(store)
    shards = [rollouts(store, prompts, iteration) for iteration in range(3)]
    last = checkpoint(store, prompts, 6, shards)
    assert {process_of(each.spec) for each in shards} == {last.spec.process}
    with summarizing(store, last.spec, "r"):
        sum(range(2_000_000))
    of_run = "FROM costs WHERE key LIKE 'runs/%'"
    assert ask(store, f"SELECT DISTINCT paid_by {of_run}") == [(last.spec.address,)]
    assert ask(store, f"SELECT sum(dollars) {of_run}") == [(cost_by_hand(store),)] != [(0,)]
    assert ask(store, "SELECT count(*) FROM attempts WHERE stage LIKE 'post_training.%'") == [(1,)]


def test_what_an_attempt_saved_before_it_failed_is_paid_once(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "lab"))
    spec = write(store, 7, [], step=20).spec
    store.delete(store.find(spec))
    with pytest.raises(RuntimeError), summarizing(store, spec, "r"):
        saved = write(store, 7, [], step=10)
        raise RuntimeError("the node is gone")
    assert saved.spec.process == spec.process
    assert ask(store, "SELECT state, recorded FROM attempts") == [("failed", "summary")]
    [(dollars,)] = ask(store, "SELECT dollars FROM costs")
    assert dollars == cost_by_hand(store) >= Decimal(0)


def test_scores_on_held_out_prompts_and_audits_of_rollouts_are_results_and_audits(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "lab"))
    last = checkpoint(store, environment(store), 6, [])
    scores = {"accuracy": 0.5, "pass_at_k": {"1": 0.5, "2": 0.75}, "prompts": 20}
    refs = {"checkpoint": last, "environment": environment(store)}
    put(store, "runs/sums/held_out", "step-00000006", "post_training.held_out", named=refs, held_out=scores)
    put(store, "runs/sums/contamination_audit", "step-00000006", "post_training.audit", named=refs, audit={"verdict": "clean"})
    about = (last.spec.address, "environments/sums")
    rows = ask(store, "SELECT checkpoint, task, metric, value, n FROM results ORDER BY metric")
    assert rows == [(*about, "accuracy", 0.5, 20), (*about, "pass@1", 0.5, 20), (*about, "pass@2", 0.75, 20)]
    assert ask(store, "SELECT checkpoint, verdict FROM audits") == [(last.spec.address, "clean")]
    assert ask(store, QUESTIONS["unaudited"].sql) == []
