"""Every Python block on the pages of docs/recipes runs, and gives what its page says.

Pages that declare whole files have tests of their own. The others show pieces, in the order of the page. What the page says
that the reader has (names of the file that a piece goes into, an earlier step) is given to the block by its test.
"""

import ast
import re
import textwrap
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from test_pages_of_runs import own, read_again

import evals.items.tasks.lambada as lambada
from datakit.corpus.filters import CorpusConfig
from datakit.corpus.removals import Removal, RemovalsConfig
from datakit.quality.score_cutoff import ScoreCutoffConfig
from datakit.quality.verdicts import Bound, QualityConfig, verdicts
from datakit.sources.datatrove_blocks import DatatroveStep
from datakit.sources.redaction import Redaction
from datakit.sources.source import Records
from datakit.tokens.formats import Preferences
from evals.items.stage import TaskSpec
from evals.items.suites import SuiteConfig, TaskConfig
from evals.items.task import Task
from evals.items.tasks.lm_eval_yaml import lm_eval_task, parse_yaml
from evals.tasks.policy import PolicyRule
from lineage.artifact.store import Store
from lineage.build.nodes import ancestors_first
from lineage.build.plan import build
from marin_assets.declared_table import tabled
from recipes import data, lab, suites
from recipes.forecasts import Forecast
from recipes.records.data import Scope
from recipes.records.run import AtStep, Evaluation, Run
from recipes.records.sweep import Sweep
from recipes.records.tokens import Mix, Tokens
from recipes.sources import source_config
from recipes.studies import annealing, midtraining, mixing, preferences, proxy, rates, small_models
from recipes.studies.critical_batch import critical_batch
from recipes.studies.default import default_corpus, tiny
from recipes.studies.isoflop import isoflop
from recipes.studies.rates import at_rate
from recipes.swarms import Swarm, runs_table
from recipes.sweeps import seed_variance
from science.search.proposers import NextBudget
from trainer.spec.config import WarmStart
from trainer.spec.objectives import Dpo
from trainer.spec.target import size_of

__all__ = ["own"]
ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "recipes"
BLOCK = re.compile(r"^( *)```python\n(.*?)^ *```", re.M | re.S)
ELSEWHERE = {
    "add_a_run.md": "recipes/test_pages_of_runs.py",
    "add_a_source.md": "recipes/test_pages_of_runs.py",
    "add_an_environment.md": "recipes/test_pages_of_rewards.py",
    "label_with_a_model.md": "recipes/test_page_of_labels.py",
    "make_synthetic_data.md": "recipes/test_pages_of_synthetic.py",
    "train_an_adapter.md": "recipes/test_pages_of_rewards.py",
    "train_on_chat.md": "recipes/test_new_tokens.py",
    "train_with_rewards.md": "recipes/test_pages_of_rewards.py",
    "verify_a_checkpoint.md": "standards/test_export.py",
}
"""Pages whose blocks another test runs."""
HERE = {
    "add_a_filter.md": 7,
    "add_a_model_family.md": 1,
    "add_an_eval_suite.md": 4,
    "anneal_in_pairs.md": 1,
    "ask_the_lineage.md": 1,
    "compare_contamination_policies.md": 1,
    "correlate_pools.md": 1,
    "declare_a_sweep.md": 1,
    "deduplicate.md": 3,
    "fit_a_law.md": 4,
    "fit_batches_and_repetition.md": 2,
    "forecast_midtraining.md": 1,
    "judge_a_corpus.md": 1,
    "promote_a_variant.md": 1,
    "search_a_mixture.md": 2,
    "search_for_settings.md": 2,
    "train_with_preferences.md": 2,
}
"""Number of blocks on the pages of this file; a new block needs a test."""


def blocks(page: str) -> list[str]:
    """The Python of a page, a text for each block."""
    return [textwrap.dedent(text) for _, text in BLOCK.findall((PAGES / page).read_text())]


def values(block: str, **given: Any) -> list[Any]:
    """Run a block; return the values of its statements that are expressions."""
    names, found = dict(given), []
    for statement in ast.parse(block).body:
        if isinstance(statement, ast.Expr):
            found.append(eval(compile(ast.Expression(statement.value), "page", "eval"), names))
        else:
            exec(compile(ast.Module([statement], []), "page", "exec"), names)
    return found


def is_in(block: str, text: str) -> bool:
    """Whether the lines of a block are lines of a text, one after another, whatever their margin and comments."""
    lines, wanted = ([re.sub(r"\s+# .*", "", line).strip() for line in each.strip().splitlines()] for each in (text, block))
    return any(lines[at : at + len(wanted)] == wanted for at in range(len(lines)))


def test_every_block_has_a_test() -> None:
    counted = {page.name: len(blocks(page.name)) for page in sorted(PAGES.glob("*.md")) if blocks(page.name)}
    assert {name: count for name, count in counted.items() if name not in ELSEWHERE} == HERE
    for page, test in ELSEWHERE.items():
        assert page in counted and page in (ROOT / "tests" / test).read_text()


def test_a_rule_drops_a_document_by_its_name_and_side() -> None:
    (rule,) = values(blocks("add_a_filter.md")[0], Bound=Bound)
    texts = pl.DataFrame({"id": ["0" * 32, "1" * 32], "text": ["1234 5678 of them", "none of them at all"]})
    assert verdicts(texts, QualityConfig("prose", (rule,)))["reason"].to_list() == ["digit_char_frac_high", ""]


def test_a_corpus_drops_what_lies_inside_longer_documents(tmp_path: Path) -> None:
    declared, shown, _ = blocks("deduplicate.md")  # tests/recipes/test_growing_scope.py runs the last one
    given = {"replace": replace, "default_corpus": default_corpus, "CorpusConfig": CorpusConfig, "data": data}
    assert values(declared, **given) == [0.7]
    store = Store(str(tmp_path))
    for node in ancestors_first([data.containment(Scope("small", ("vendored_prose",)))]):
        made = build(store, node).artifact
    (table,) = values(shown, pl=pl, containment_artifact=made)
    assert table.columns == ["id", "container", "containment"]
    assert table.height == made.manifest.extra["containment"]["contained"]


def test_the_distribution_of_a_signal_is_read_from_a_quality_table(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    for node in ancestors_first([data.quality("vendored_prose")]):
        made = build(store, node).artifact
    (quantiles,) = values(blocks("add_a_filter.md")[1], pl=pl, quality_artifact=made)
    median, most, nearly_all = quantiles.row(0)
    assert 0 <= median <= most <= nearly_all < 0.1


def test_the_steps_of_datatrove_are_a_sources() -> None:
    source = source_config("package_docs")
    (changed,) = values(blocks("add_a_filter.md")[2], replace=replace, DatatroveStep=DatatroveStep, source=source)
    assert [step.block.rpartition(":")[2] for step in changed.steps] == ["PIIFormatter", "RegexFilter", "GopherQualityFilter"]


def test_the_redaction_of_the_page_is_a_sources() -> None:
    given = {"replace": replace, "Redaction": Redaction, "source": source_config("package_docs")}
    (changed,) = values(blocks("add_a_filter.md")[3], **given)
    assert changed.steps == (Redaction(("email", "ip_address", "secret")),)


def test_corpora_filter_by_a_score() -> None:
    given = {"replace": replace, "default_corpus": default_corpus, "CorpusConfig": CorpusConfig}
    sure, best = values(blocks("add_a_filter.md")[4], ScoreCutoffConfig=ScoreCutoffConfig, **given)
    assert sure.filters.min_score == 0.9 and "scores" in sure.filters.reads
    assert best == next(corpus for corpus in lab.declarations().corpora if corpus.name == "best_half")


def test_the_stage_and_the_reason_of_the_page_are_those_of_the_examples() -> None:
    stage, reason = blocks("add_a_filter.md")[5:]
    added = re.sub(r"^\+", "", (ROOT / "docs/design/extending/stage.patch").read_text(), flags=re.M)
    assert is_in(stage, added)  # tests/tools/test_extending.py applies the patch
    assert is_in(reason, (ROOT / "datakit/corpus/filters.py").read_text())


def test_the_block_of_a_family_is_olmo_2s() -> None:
    (block,) = blocks("add_a_model_family.md")
    body = block.partition("\n")[2]
    assert is_in(body, (ROOT / "trainer/model/olmo2.py").read_text())


def test_the_benchmark_of_the_page_is_the_declared_one() -> None:
    given = {"TaskConfig": TaskConfig, "olmo_eval_tasks": suites.olmo_eval_tasks, "SuiteConfig": SuiteConfig}
    task, suite = ast.parse(blocks("add_an_eval_suite.md")[0]).body
    (declared,) = values(ast.unparse(task), **given)
    assert declared in suites.olmo_eval_tasks()
    (whole,) = values(ast.unparse(suite).replace(", ...)", ",)"), **given)
    assert whole == suites.suite_config("benchmarks", "olmo_eval")


def test_the_task_record_of_the_page_is_lambadas() -> None:
    block = blocks("add_an_eval_suite.md")[1]
    names: dict[str, Any] = dict(vars(lambada))
    written = lambada.LAMBADA
    exec(block, names)
    ours = names["LAMBADA"]
    assert isinstance(ours, Task) and (ours.name, ours.kind, ours.stops, ours.extract, ours.metrics, ours.formats) == (
        written.name, written.kind, written.stops, written.extract, written.metrics, written.formats
    )  # fmt: skip


SCIQ = """
task: sciq
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_target: gold
doc_to_choice: options
metric_list:
  - metric: acc
"""


def test_a_yaml_of_lm_eval_is_a_task() -> None:
    names: dict[str, Any] = {"lm_eval_task": lm_eval_task, "parse_yaml": parse_yaml, "SCIQ_YAML": SCIQ}
    exec(blocks("add_an_eval_suite.md")[2], names)
    assert set(names["SCIQ"].render) == {"lm_eval"} and list(names["SCIQ"].formats) == ["lm_eval_sciq"]


def test_the_rule_asks_at_the_last_saved_step_alone() -> None:
    (rule,) = values(blocks("add_an_eval_suite.md")[3], PolicyRule=PolicyRule, TaskSpec=TaskSpec)
    assert [rule.is_due(at, 3) for at in range(3)] == [False, False, True]


def test_a_removal_list_changes_the_corpus() -> None:
    block = blocks("ask_the_lineage.md")[0].replace("<32 hex digits>", "0123456789abcdef" * 2)
    given = {"replace": replace, "default_corpus": default_corpus, "CorpusConfig": CorpusConfig}
    (corpus,) = values(block, RemovalsConfig=RemovalsConfig, Removal=Removal, **given)
    assert corpus.removals is not None and corpus.removals.requests[0].why == "request 12"


def test_the_documents_where_two_policies_disagree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "found").mkdir()
    marked = {"document": ["a", "b"], "marin-13gram": [True, False], "window_coverage+alignment": [True, True]}
    pl.DataFrame(marked).write_parquet("found/documents.parquet")
    (found,) = values(blocks("compare_contamination_policies.md")[0], pl=pl)
    assert found["document"].to_list() == ["b"]


RUNS = """
from recipes.studies.averaging import tiny_averaged
from recipes.studies.default import tiny


def my_runs():
    return [tiny(), tiny_averaged()]


"""
PAIRS = """
from dataclasses import replace
from recipes.records.sweep import Sweep
from recipes.studies.isoflop import isoflop as ladder
from recipes.studies.small_models import at_budget


def pairs(name):
    budgets = {"c1e12": 1e12, "c2e12": 2e12, "c4e12": 4e12, "c8e12": 8e12}
    trials = [at_budget(size, 48, budget, seed=1 + (name == "gated")) for size, budget in budgets.items()]
    return Sweep(name, tuple(trials), tuple(budgets.values()))


def baseline():
    return pairs("baseline")


def gated():
    return pairs("gated")


"""


@pytest.mark.parametrize(
    ("page", "has", "asset"),
    [
        ("correlate_pools.md", RUNS, ("correlations", "pools")),
        ("promote_a_variant.md", PAIRS, ("promotions", "gated_norm")),
    ],
)
def test_the_study_of_the_page_has_its_asset(own: Path, page: str, has: str, asset: tuple[str, ...]) -> None:
    (block,) = blocks(page)
    (own / "mine.py").write_text(has + block.replace("sweeps=(ladder, ", "sweeps=("))  # the ladder is declared already
    read_again()
    table, kept = tabled(lab.declarations())
    assert not kept.broken
    assert asset in {template.example.key for template in table}


def test_crossed_seeds_are_a_sweep_with_a_table_of_variances() -> None:
    (noise,) = values(blocks("declare_a_sweep.md")[0], run=at_rate("low", 1e-3))
    assert len(noise.trials) == 9 and seed_variance(noise).key == ("sweeps", "noise", "seed_variance")


def test_a_sweep_with_a_law_forecasts_a_run() -> None:
    declare, forecast, score, _ = blocks("fit_a_law.md")
    (ladder,) = values(declare, trials=isoflop().trials, budgets=isoflop().budgets)
    assert ladder.law is not None and ladder.name == "ladder"
    run = tiny()
    (forecast_run,) = values(forecast, spec=run.spec, mix=run.data, evaluation=run.evaluation, ladder=lambda: ladder)
    assert forecast_run.forecast.node(forecast_run).key == ("forecasts", "ladder-5x")
    given = {"spec": run.spec, "mix": run.data, "evaluation": run.evaluation, "ladder": lambda: ladder}
    given |= {"Run": Run, "Forecast": Forecast, **dict.fromkeys("abcdef", tiny)}
    (scored,) = values(score.replace("arithmetic", "hellaswag"), **given)
    assert scored.forecast.judged_by == ("hellaswag", "accuracy") and len(scored.forecast.points) == 6


def test_the_law_of_the_published_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    values(blocks("fit_a_law.md")[3])
    at, low, *_ = (float(found) for found in re.findall(r"\d+\.\d+", capsys.readouterr().out))
    assert 1 < low < at < 3


def test_an_annealing_is_three_mixes_in_pairs() -> None:
    names: dict[str, Any] = dict(vars(annealing))
    exec(blocks("anneal_in_pairs.md")[0], names)
    assert names["tiny_annealing"]() == replace(annealing.tiny_annealing(), seeds=(0, 1, 2))


def test_a_proxy_is_two_corpora_in_pairs() -> None:
    names: dict[str, Any] = dict(vars(proxy))
    exec(blocks("judge_a_corpus.md")[0], names)
    assert names["best_half_judged"]() == proxy.best_half_judged()


def test_sweeps_have_an_estimate_of_critical_batch_or_of_repetition() -> None:
    batch, repeats = blocks("fit_batches_and_repetition.md")
    (critical,) = values(batch, Sweep=Sweep, trials=critical_batch().trials)
    (repeated,) = values(repeats, Sweep=Sweep, trials=isoflop().trials, budgets=isoflop().budgets)
    assert critical.critical_batch.exponent == 0.28 and repeated.repetition is not None


def test_a_branch_is_forecast_from_a_ladder() -> None:
    (run,) = values(blocks("forecast_midtraining.md")[0], **vars(midtraining))
    declared = lab.declarations().run("rung_64_prose")
    assert run.forecast.node(run).key == declared.forecast.node(declared).key == ("forecasts", "rung_64_prose")


def test_searches_declare_their_next_trials() -> None:
    rates_page, sizes_page = blocks("search_for_settings.md")
    names: dict[str, Any] = {"my_sweep": rates.tiny_rates, "at_rate": at_rate, "Mapping": Mapping, "Run": Run}
    exec(rates_page, names)
    searched = names["my_search"]()
    assert searched.run_at("next", {"learning_rate": 2e-3}) == at_rate("next", 2e-3)
    names |= {**vars(small_models), "isoflop": isoflop, "NextBudget": NextBudget, "size_of": size_of}
    exec(sizes_page, names)
    next_budget = names["isoflop_next"]()
    run = next_budget.run_at("next", {"width": 48.0, "budget": 1.6e13, "seed": 0.0})
    assert run.spec.model.hidden_dim == 48 and size_of(run.spec).flops == pytest.approx(1.6e13, rel=0.05)


def test_a_swarm_gets_a_second_round() -> None:
    names: dict[str, Any] = {"my_swarm": mixing.prose_swarm, "replace": replace, "Swarm": Swarm}
    second, split = blocks("search_a_mixture.md")
    exec(second, names)
    of = names["my_swarm_in_two_rounds"]()
    assert len(of.second_trials.trials) == 16 and of.trials == mixing.prose_swarm().trials
    names["my_new_swarm"] = mixing.prose_swarm
    exec(split, names)
    later = names["my_later_swarm"]()
    assert runs_table(later).inputs["earlier"] == runs_table(mixing.prose_swarm())
    other = replace(
        mixing.prose_swarm(), base=replace(of.base, spec=replace(of.base.spec, batch_size=2 * of.base.spec.batch_size))
    )
    with pytest.raises(ValueError, match="differ in more than their mixture"):
        replace(other, earlier=later.earlier)


def test_the_pairs_and_the_run_of_the_page_are_preferences() -> None:
    records, run = blocks("train_with_preferences.md")
    (declared,) = values(records, Records=Records)
    assert (declared.form, declared.rejected) == ("preferences", "rejected")
    before = preferences.addition_sft()
    model = replace(before.spec.model, max_seq_len=1024)
    before = replace(before, spec=replace(before.spec, model=model))
    example = preferences.addition_tokens(preferences.PAIRS)
    given = {
        "Tokens": Tokens, "Preferences": Preferences, "TEMPLATE": preferences.CHAT_TEMPLATE, "Dpo": Dpo, "Run": Run, "Mix": Mix,
        "WarmStart": WarmStart, "Evaluation": Evaluation, "AtStep": AtStep, "replace": replace, "before": before,
        "corpus": example.corpus, "tokenizer": example.tokenizer, "suites": before.evaluation.suites, "step": 1500,
        "held_out": replace(preferences.addition_tokens(preferences.HELD_OUT), format=replace(example.format, side_tokens=512)),
    }  # fmt: skip
    (made_run,) = values(run, **given)
    assert made_run.spec.objective.beta == 0.1 and made_run.data.tokens.format.side_tokens * 2 == made_run.spec.seq_len
