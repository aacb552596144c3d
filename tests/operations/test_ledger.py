"""The ledger: what it says of small stores, that it follows them, and that SQL reaches nothing else."""

import datetime
import json
import re
import shutil
from dataclasses import asdict, replace
from decimal import Decimal
from pathlib import Path

import duckdb
import polars as pl
import pytest
from ferry_costs import cost_by_hand
from random_lineage import write
from small import FinishedFerry
from small_runs import DAY

from lineage.artifact.made_by import MadeBy
from lineage.artifact.manifest import MANIFEST_NAME
from lineage.artifact.store import Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.jobs.job import Attempt, JobFailedError, LaunchRecord
from lineage.jobs.summary import SUMMARIES, StepSummary, read_summary, summarizing
from lineage.stage import Stage
from lineage.writing.writer import Writer
from operations.ledger import attempts
from operations.ledger.costs import CACHE, FEW, priced
from operations.ledger.database import RefusedQueryError, opened, query, save
from operations.ledger.ledger import Ledger, open_ledger
from operations.ledger.prices import Price, PriceTable, charge, cost, total
from operations.ledger.questions import QUESTIONS
from operations.ledger.schema import LAUNCHES
from recipes.prices import price_table

TODAY = datetime.datetime.now(datetime.UTC).date()


def ledger(*stores: Store) -> Ledger:
    return open_ledger(stores, price_table(), TODAY)


def ask(opened_ledger: Ledger, sql: str) -> list[tuple]:
    with opened(opened_ledger) as connection:
        return query(connection, sql).rows()


def test_the_cost_of_a_ferry_by_sql_is_the_sum_of_its_attempts_by_hand(finished_ferry: FinishedFerry) -> None:
    store = finished_ferry.lab.ferry_store
    [(dollars, artifacts)] = ask(ledger(store), "SELECT sum(dollars), count(*) FROM costs WHERE key LIKE 'ferry/%'")
    assert artifacts == len(list(store.artifacts())) > 20
    assert dollars == cost_by_hand(store) > 0
    [row] = ask(ledger(store), QUESTIONS["cost-of-ferries"].sql)
    assert row == (DAY, artifacts, dollars)


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_canned_question_has_an_answer(finished_ferry: FinishedFerry, name: str) -> None:
    answer = ask(ledger(finished_ferry.lab.store, finished_ferry.lab.ferry_store), QUESTIONS[name].sql)
    quiet = {"cost-of-failures", "unpriced", "standing-waivers", "refused-artifacts", "forecasts", "caches-without-readers"}
    quiet |= {"synthetic-rows", "rollouts", "storage-by-day"}
    assert answer or name in quiet | {"contaminated", "unaudited"}


def test_the_recipe_names_every_question_and_every_table_and_no_other(finished_ferry: FinishedFerry) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/recipes/ask_the_operations.md").read_text()
    asked, _, tables = page.partition("## Tables")
    assert set(re.findall(r"^\| .* \| `([a-z-]+)` \|$", asked, re.MULTILINE)) == set(QUESTIONS)
    first_cells = re.findall(r"^\| (`.*?) \| ", tables.partition("Views:")[0], re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(first_cells))) == set(ledger(finished_ferry.lab.store).tables)


def test_a_ferry_has_a_summary_of_every_step(finished_ferry: FinishedFerry) -> None:
    store = finished_ferry.lab.ferry_store
    sql = "SELECT DISTINCT a.name FROM artifacts a JOIN attempts t USING (store, process) WHERE recorded = 'summary'"
    rows = ask(ledger(store), sql)
    made = {artifact.name for artifact in store.artifacts()}
    assert {name for (name,) in rows} == made


def test_the_ledger_follows_the_store(tmp_path: Path) -> None:
    """New, deleted, put back and edited manifests, each seen by the next opening; a fresh ledger agrees."""
    store, saved = Store(str(tmp_path / "artifacts")), tmp_path / "artifacts" / ".operations"
    first, second = write(store, 1, []), write(store, 2, [])
    third = write(store, 3, [first, second])

    def names() -> list[str]:
        rows = ask(ledger(store), "SELECT name FROM artifacts ORDER BY name")
        copy = tmp_path / "copy" / "artifacts"
        shutil.copytree(store.root, copy, ignore=shutil.ignore_patterns(".operations"))
        assert rows == ask(ledger(Store(str(copy))), "SELECT name FROM artifacts ORDER BY name")
        shutil.rmtree(copy)
        return [name for (name,) in rows]

    assert names() == ["tests/n1", "tests/n2", "tests/n3"]
    assert saved.is_dir()
    manifest = Path(store.root) / second.spec.address / MANIFEST_NAME
    text = manifest.read_text()
    manifest.unlink()
    assert names() == ["tests/n1", "tests/n3"]
    manifest.write_text(text)
    assert names() == ["tests/n1", "tests/n2", "tests/n3"]
    write(store, 4, [third])
    assert names()[-1] == "tests/n4"
    assert len(ask(ledger(store), "SELECT * FROM inputs")) == 3


def test_a_manifest_that_was_edited_is_named_and_the_others_are_counted(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    write(store, 1, [])
    bad = write(store, 2, [])
    manifest = tmp_path / bad.spec.address / MANIFEST_NAME
    manifest.write_text(manifest.read_text().replace('"run_id": ""', '"run_id": "x"'))
    for _ in range(2):
        now = ledger(store)
        assert ask(now, "SELECT name FROM artifacts") == [("tests/n1",)]
        [(what, why)] = now.unreadable.items()
        assert what.endswith(bad.spec.address) and "edited" in why


def test_failed_attempts_are_paid_by_the_artifact_that_came_in_the_end(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    made = write(store, 1, [])
    tries = (
        Attempt(1, "", 3600.0, "preempted"),
        Attempt(2, "pod a on n", 1800.0, "done"),
        Attempt(2, "pod b on n", 1800.0, "done"),
    )
    gang = LaunchRecord("JobSet marin/x", "v5p-16", tries)
    with pytest.raises(JobFailedError), summarizing(store, made.spec, "r1"):
        raise JobFailedError("no machine", LaunchRecord("JobSet marin/x", "v4-8", (Attempt(1, "", 360.0, "stockout"),)))
    with summarizing(store, made.spec, "r2") as attempt:
        attempt.launched = gang
    hour = {name: price_table().at(name, "machine_hour", TODAY.isoformat()) for name in ("v4-8", "v5p-16")}
    assert hour["v5p-16"] is not None and hour["v4-8"] is not None and hour["v5p-16"].hosts == 2
    wanted = hour["v4-8"].dollars / 10 + hour["v5p-16"].dollars * Decimal("1.5")
    [(dollars, attempts_made, failed)] = ask(ledger(store), "SELECT dollars, attempts, failed_attempts FROM costs")
    assert (dollars, attempts_made, failed) == (wanted, 4, 2)


def test_an_unknown_price_and_an_attempt_without_an_end_are_named_and_never_zero(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    made, other = write(store, 1, []), write(store, 2, [])
    with summarizing(store, made.spec, "r") as attempt:
        attempt.launched = LaunchRecord("Job x", "b300x8", (Attempt(1, "pod a on n", 5.0, "done"),))
    killed = summarizing(store, other.spec, "r")
    killed.__enter__()
    try:
        rows = dict(ask(ledger(store), "SELECT name, unpriced FROM costs WHERE dollars IS NULL"))
    finally:
        killed.__exit__(None, None, None)
    assert rows["tests/n1"].startswith("no price of b300x8")
    assert rows["tests/n2"] == "an attempt on this machine has no recorded end"
    assert ask(ledger(store), "SELECT dollars IS NULL FROM costs WHERE name = 'tests/n2'") == [(False,)], "it has ended"


def test_a_summary_that_cannot_be_written_hides_no_error(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    made = write(store, 1, [])
    with pytest.raises(ValueError, match="its own error") as raised, summarizing(store, made.spec, "r"):
        shutil.rmtree(tmp_path / ".operations")
        (tmp_path / ".operations").write_text("no folder any more")
        raise ValueError("its own error")
    assert "stays `running`" in raised.value.__notes__[0]


@pytest.mark.parametrize("step", [2**63, -(2**63) - 1, 2**200])
def test_a_number_that_no_column_holds_is_named_and_the_others_are_counted(tmp_path: Path, step: int) -> None:
    store = Store(str(tmp_path))
    write(store, 1, [])
    bad = write(store, 2, [], step=step)
    now = ledger(store)
    assert ask(now, "SELECT name FROM artifacts") == [("tests/n1",)]
    [(what, why)] = now.unreadable.items()
    assert what.endswith(bad.spec.address) and f"{step} does not fit into 64 bits" in why


def test_summaries_that_are_no_summaries_are_named(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    made = write(store, 1, [])
    with summarizing(store, made.spec, "r"):
        pass
    [path] = list((tmp_path / SUMMARIES).rglob("*.json"))
    record = json.loads(path.read_text())
    path.with_name("20991231T000000-00000000.json").write_text(path.read_text())
    path.with_name("20991231T000000-00000001.json").write_text(json.dumps({**record, "seconds": "many"}))
    path.with_name("20991231T000000-00000002.json").write_text("{")
    assert len(ledger(store).unreadable) == 3


def test_checkpoints_of_one_job_have_one_bill(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    specs = [write(store, 7, [], step=step).spec for step in (10, 20)]
    assert specs[0].process == specs[1].process
    with summarizing(store, specs[1], "r") as _:
        pass
    paid_by = dict(ask(ledger(store), "SELECT address, paid_by FROM costs"))
    assert paid_by == {spec.address: specs[1].address for spec in specs}
    assert ask(ledger(store), f"SELECT dollars FROM costs WHERE address = '{specs[0].address}'") == [(0,)]
    assert ask(ledger(store), "SELECT count(*) FROM attempts") == [(1,)]


def counted(out: Writer, config: str) -> None:
    (out.folder / "sum").write_text(str(sum(range(1_000_000))))
    out.record(rows_out=1)


def test_a_reuse_costs_nothing(tmp_path: Path) -> None:
    store, node = Store(str(tmp_path / "lab")), Node(("tests", "sum"), None, Stage("tests.sum", "1", counted), "")
    assert not build(store, node).reused
    once = ask(ledger(store), "SELECT name, dollars, attempts FROM costs")
    assert build(store, node).reused
    assert ask(ledger(store), "SELECT name, dollars, attempts FROM costs") == once == [("tests/sum", cost_by_hand(store), 1)]


def test_a_price_holds_from_its_day() -> None:
    earlier = Price("x", "machine_hour", Decimal(1), "2026-01-01", "a")
    table = PriceTable((earlier, replace(earlier, dollars=Decimal(2), since="2026-02-01")))
    days = ("2025-12-31", "2026-01-31", "2026-02-01")
    prices = [table.at("x", "machine_hour", day) for day in days]
    assert [price and price.dollars for price in prices] == [None, 1, 2]
    assert total([Decimal("0.1")] * 10) == 1 and total([Decimal(1), None]) is None
    with pytest.raises(ValueError, match="declared twice"):
        PriceTable((table.prices[0], table.prices[0]))


def test_money_is_exact_to_a_billionth_of_a_dollar(tmp_path: Path) -> None:
    """A third of a dollar, a hundred thousand times."""
    price = Price("x", "machine_hour", Decimal(1), "2026-01-01", "a")
    used = ("x", False, 1200.0, None, None, "u", "h", "summary")
    rows = [("l", "a", "p", "n", "s", "r", 1, "done", "", "2026-01-02", "", "", *used)]
    attempts = pl.DataFrame(rows * 100_000, schema=LAUNCHES, orient="row")
    costs = priced(Store(str(tmp_path)), attempts, PriceTable((price,)))
    assert abs(costs["dollars"].sum() - charge(price, 120_000_000.0, 1)) < Decimal("1e-6")
    assert costs["dollars"][0] == Decimal("0.333333333333")


def test_kept_costs_are_those_of_the_prices_and_attempts_of_today(tmp_path: Path) -> None:
    """Costs of many attempts are kept. Another price, an attempt that ended and one that is new are calculated."""
    store, old, new = (
        Store(str(tmp_path)),
        *(PriceTable((Price("x", "machine_hour", Decimal(d), "2026-01-01", "a"),)) for d in (1, 2)),
    )

    def attempts(count: int, first: float | None) -> pl.DataFrame:
        seconds = [first, *map(float, range(1, count))]
        about, by = ("l", "a", "p", "n", "s", "r", 1, "done", "", "2026-01-02", "", "", "x", False), ("u", "h", "summary")
        rows = [(*about, each, None, None, *by) for each in seconds]
        return pl.DataFrame(rows, schema=LAUNCHES, orient="row")

    for table, prices in (
        (attempts(FEW + 2, None), old),
        (attempts(FEW + 2, None), old),
        (attempts(FEW + 2, 3600.0), old),
        (attempts(FEW + 9, 3600.0), old),
        (attempts(FEW + 9, 3600.0), new),
        (attempts(FEW, 7.0), new),
    ):
        by_hand = [cost(prices.prices[0], "2026-01-02", "x", s, None, one_host=False) for s in table["seconds"]]
        found = priced(store, table, prices)
        assert found["dollars"].to_list() == [each.dollars for each in by_hand]
        assert found["unpriced"].to_list() == [each.unknown for each in by_hand]
    assert store.storage.read_bytes(CACHE) is not None


@pytest.mark.parametrize(
    "sql",
    [
        "COPY artifacts TO '/tmp/x.csv'",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM glob('/*')",
        "ATTACH '/tmp/x.duckdb'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "SELECT 1; DROP VIEW artifacts",
        "CREATE TABLE x AS SELECT 1",
        "DELETE FROM artifacts",
        "SELECT * FROM ledger",
        "PRAGMA database_list; SELECT 1",
        "",
    ],
)
def test_sql_reads_the_ledger_and_nothing_else(tmp_path: Path, sql: str) -> None:
    with opened(ledger(Store(str(tmp_path)))) as connection, pytest.raises((RefusedQueryError, duckdb.Error)):
        query(connection, sql)


def test_the_ledger_as_a_file_answers_the_same(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "artifacts"))
    write(store, 2, [write(store, 1, [])])
    whole = ledger(store)
    save(whole, tmp_path / "lab.duckdb")
    with duckdb.connect(str(tmp_path / "lab.duckdb"), read_only=True) as connection:
        sql = "SELECT * FROM costs ORDER BY name"
        assert connection.execute(sql).fetchall() == ask(whole, sql)
    with pytest.raises(ValueError, match="exists already"):
        save(whole, tmp_path / "lab.duckdb")


def test_a_summary_comes_back_as_it_was_written() -> None:
    about = (
        "20261125T000000-00000000",
        "a/_/v",
        "p",
        "a",
        "s",
        "r",
        "done",
        "",
        "2026-11-25",
        "2026-11-25",
        "",
        "this machine",
    )
    summary = StepSummary(*about, (Attempt(1, "p", 1.0, "done"),), 1.0, 2.0, 3, MadeBy())
    assert read_summary(json.dumps({"format": "attempt/1", **asdict(summary)}), "x") == summary
    assert len(attempts.rows(summary)) == 1
