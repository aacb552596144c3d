"""A whole evaluation of a real untrained model, in this process and as `python -m evals job.json`."""

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path

import equinox as eqx
import numpy as np
import polars as pl
import pytest
from tiny import tiny_model, tiny_spec
from unigram import START, byte_tokenizer

from evals.items.item import ITEMS_FILE, Item, write_items
from evals.items.prompts import render
from evals.items.stage import EVAL_RESULT, GAP, EvalConfig, GapConfig, TaskSpec
from evals.reports.gap import measure_gap
from evals.scoring.metrics import better
from evals.scoring.plots import scores_png
from evals.scoring.report_page import scores_table
from evals.tasks.benchmarks import ACCURACIES
from evals.tasks.evaluate import evaluate
from evals.tasks.policy import POLICY, PolicyConfig, PolicyRule
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, resolve, spec_of
from lineage.build.plan import build, build_all
from lineage.jobs.job import Job
from lineage.stage import Stage
from lineage.storage.digests import text_digest
from lineage.writing.writer import Writer
from trainer.checkpoint import METRICS_SCHEMA, Tables, snapshot, write_checkpoint
from trainer.initial_state import initial_state
from trainer.model.protocol import LanguageModel
from trainer.scoring import load_scorer
from trainer.spec.optimizers import EmaConfig
from trainer.spec.schedules import WarmupStableDecay

pytestmark = pytest.mark.usefixtures("quick_compilation")

RUN = tiny_spec(
    name="r",
    model=tiny_model(
        vocab_size=257, hidden_dim=16, intermediate_dim=32, num_layers=1, num_heads=2, num_kv_heads=1, max_seq_len=48
    ),
    schedule=WarmupStableDecay(peak_learning_rate=1e-2, warmup_steps=1, decay_frac=0.5),
    seq_len=48,
    num_steps=10,
    save_every_steps=10,
    ema=EmaConfig(),
)
HELDOUT = ("heldout", "heldout_ema")
CHOICES = ("red", "blue", "a very deep green")
QUIZ = Item("s", "quiz", "99", "Long?", "x" * 90, "MIT", "d", choices=("x" * 90, "y"), answer_index=0)
SUMS = Item("s", "sums", "", "?", "", "MIT", "d")
ITEMS = (
    QUIZ,
    *(
        replace(QUIZ, item_id=f"{n:02d}", question=f"Colour {n}?", answer=CHOICES[n % 3], choices=CHOICES, answer_index=n % 3)
        for n in range(9)
    ),
    *(
        replace(SUMS, item_id=f"{n}", question=f"What is {n} and {n}? " * 3, answer=f"{2 * n}", solution=f"It is {2 * n}.")
        for n in range(4)
    ),
)
TEXTS = ("In the beginning was the word. " * 4, "It was a bright cold day in April.", "Call me Ishmael.")
SAID = TaskSpec("sums_said", "generation", items="sums", max_new_tokens=6)
SUMS_AS_CHOICES = TaskSpec("sums", "multiple_choice")
AVERAGED = TaskSpec("heldout_ema", "perplexity", weights="ema")
TASKS = (TaskSpec("heldout", "perplexity"), AVERAGED, TaskSpec("quiz", "multiple_choice"), TaskSpec("sums", "gold_bpb"), SAID)


@dataclass(frozen=True)
class Seed:
    """Which of several untrained models."""

    seed: int


def write_model(out: Writer, config: Seed) -> None:
    spec = replace(RUN, seed=config.seed)
    metrics = pl.DataFrame([(0, 5.5, 1e-3, 1.0, False, 192, 0.1, 1.0)], schema=METRICS_SCHEMA, orient="row")
    state, average = initial_state(spec), initial_state(replace(spec, seed=config.seed + 1)).ema
    write_checkpoint(out, spec, snapshot(replace(state, ema=average)), Tables(metrics), {})


def write_tokenizer(out: Writer, config: dict) -> None:
    byte_tokenizer().save(str(out.folder / "tokenizer.json"))
    out.extra["tokenizer"] = {"vocab_size": 257, "eos": START}


def write_suite(out: Writer, config: dict) -> None:
    write_items(out.folder / ITEMS_FILE, [replace(item, suite=config["suite"]) for item in ITEMS])


def write_corpus(out: Writer, config: dict) -> None:
    rows = sorted((text_digest(text), text) for text in TEXTS)
    (out.folder / "heldout").mkdir()
    frame = pl.DataFrame(rows, schema={"id": pl.String, "text": pl.String}, orient="row")
    frame.with_columns(source=pl.lit("books")).write_parquet(out.folder / "heldout" / "part-00000-of-00001.parquet")
    out.extra["corpus"] = {"domain": "prose"}


MODEL = Node(("model",), None, Stage("tests.model", "1", write_model), Seed(0))
AVERAGE = Node(("average",), None, Stage("tests.model", "1", write_model), Seed(1))
"""Its raw weights are the average that `MODEL` holds."""
TOKENIZER = Node(("tokenizer",), None, Stage("tests.tokenizer", "1", write_tokenizer), {})
CORPUS = Node(("corpus",), None, Stage("tests.corpus", "1", write_corpus), {})
SUITE = Stage("tests.suite", "1", write_suite)


def result(tasks: tuple[TaskSpec, ...] = TASKS, by_policy: tuple[TaskSpec, ...] = TASKS, seed: int = 1) -> Node:
    suites = (Node(("suite", "s"), None, SUITE, {"suite": "s"}),)
    declared = PolicyConfig("2026-11-22-tests", tuple(PolicyRule(task) for task in by_policy), seed)
    inputs = {
        "checkpoint": MODEL,
        "tokenizer": TOKENIZER,
        "suites": suites,
        "shots": (),
        "corpora": (CORPUS,),
        "policy": Node(("policy",), None, POLICY, declared, {"suites": suites, "shots": ()}),
    }
    return Node(("eval_result",), "step-00000010", EVAL_RESULT, EvalConfig(tasks, seed=1), inputs)


def job(root: Path, node: Node) -> Job:
    store = Store(str(root))
    build_all(store, node.parents())
    inputs = {
        name: tuple(resolve(store, n) for n in value) if isinstance(value, tuple) else resolve(store, value)
        for name, value in node.inputs.items()
    }
    return Job(store, spec_of(store, node), inputs, "", "")


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory, quick_compilation) -> Artifact:
    return evaluate(job(tmp_path_factory.mktemp("store"), result()))


def records_of(artifact: Artifact) -> pl.DataFrame:
    return pl.read_parquet(artifact.files("records.parquet")[0])


def test_the_artifact_holds_records_and_scores_and_nothing_else(evaluated):
    assert [entry.path for entry in evaluated.manifest.files] == ["records.parquet", "scores.json"]
    scores = json.loads(evaluated.files("scores.json")[0].read_text())
    assert scores == evaluated.manifest.extra["scores"]
    assert {(s["task"], s["metric"]) for s in scores} == {
        *((f"{task}/{tag}", "bits_per_byte") for task in HELDOUT for tag in ("prose", "prose/books")),
        *((task, f"{how}_bits_per_byte") for task in HELDOUT for how in ("micro", "macro", "batch_weighted")),
        *((task, f"{what}_nats_per_token") for task in HELDOUT for what in ("loss", "unigram_entropy")),
        *(("quiz", metric) for metric in ("gold_bits_per_byte", *ACCURACIES, "chance")),
        ("sums", "gold_bits_per_byte"),
        *(("sums_said", metric) for metric in ("exact_match", "unparsed", "cut_off")),
    }
    assert all(s["low"] <= s["value"] <= s["high"] for s in scores)
    undirected = {s["metric"] for s in scores if better(s["metric"]) == "neither"}
    assert undirected <= {"chance", "unigram_entropy_nats_per_token"}, "every other metric says which way it is better"
    loss = next(s for s in scores if s["metric"] == "loss_nats_per_token")
    assert loss["value"] == pytest.approx(math.log(257), abs=0.05)  # an untrained model is uniform


def test_every_item_has_a_record_and_what_failed_is_counted(evaluated):
    records = records_of(evaluated)
    ids = {(task, item) for task, item in records.select("task", "item_id").iter_rows()}
    generated = {("sums_said", i.item_id) for i in ITEMS if i.task == "sums"}
    texts = {(task, text_digest(text)) for task in HELDOUT for text in TEXTS}
    assert ids == {(i.task, i.item_id) for i in ITEMS} | texts | generated
    assert records.height == len(ids)
    failed = records.filter(pl.col("verdict") == "failed")
    assert failed["item_id"].to_list() == ["99"]
    statistics = evaluated.manifest.statistics
    assert (statistics["rows_in"], statistics["rows_out"], statistics["drops"]) == (24, 23, {"not_scorable": 1})
    assert statistics["prompts_truncated"] == 8  # each sum's question alone is longer than the context


def test_the_records_file_has_a_column_for_each_thing_that_one_asks_of_an_item(evaluated):
    records = records_of(evaluated)
    kinds = {"prompt_digest": pl.String, "continuations": pl.List(pl.String), "log_probs": pl.List(pl.Float64)}
    kinds |= {"answer": pl.String, "verdict": pl.String, "correct": pl.Boolean}
    assert {name: records.schema[name] for name in kinds} == kinds
    chosen = records.filter(task="quiz", verdict="graded")
    for row in chosen.iter_rows(named=True):
        assert row["continuations"] == [f" {choice}" for choice in CHOICES]
        by_byte = [
            log_prob / len(choice.encode()) for log_prob, choice in zip(row["log_probs"], row["continuations"], strict=True)
        ]
        assert row["answer"] == CHOICES[int(np.argmax(by_byte))]
    heldout = records.filter(task="heldout", item_id=text_digest(TEXTS[2]))
    expected = -heldout["bpb"][0] * math.log(2) * len(TEXTS[2].encode())
    assert heldout["log_probs"].to_list() == [[pytest.approx(expected, rel=1e-4)]]


_padded_logits = eqx.filter_jit(lambda model, tokens: model(tokens))


def logits_of(model: LanguageModel, tokens: list[int]) -> np.ndarray:
    """Logits of every place of one sequence, which is padded on the right so that one program serves all lengths."""
    padded = np.zeros((1, RUN.model.max_seq_len), np.int32)
    padded[0, : len(tokens)] = tokens
    return np.asarray(_padded_logits(model, padded))[0, : len(tokens)]


def test_bits_per_byte_agree_with_the_model_asked_one_item_at_a_time(evaluated):
    model = load_scorer(evaluated.input("checkpoint")).model
    bpb = {(t, i): b for t, i, b in records_of(evaluated).select("task", "item_id", "bpb").iter_rows()}

    def slow_nats(tokens: list[int], scored: int) -> float:
        logits = logits_of(model, tokens[:-1]).astype(np.float64)
        logged = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        return -sum(logged[i - 1, tokens[i]] for i in range(len(tokens) - scored, len(tokens)))

    for item in ITEMS[1:3]:
        ending = f" {item.answer}".encode()
        tokens = [START, *render(item).prompts[0].encode(), *ending]
        expected = slow_nats(tokens, len(ending)) / math.log(2) / len(ending)
        assert bpb["quiz", item.item_id] == pytest.approx(expected, rel=1e-4)
    text = TEXTS[2].encode()
    assert bpb["heldout", text_digest(TEXTS[2])] == pytest.approx(
        slow_nats([START, *text], len(text)) / math.log(2) / len(text), rel=1e-4
    )


def test_the_average_is_scored_as_a_model_of_its_own(evaluated, tmp_path):
    records = records_of(evaluated)
    raw, average = (dict(records.filter(task=task).select("item_id", "bpb").iter_rows()) for task in HELDOUT)
    assert set(records.filter(task="heldout_ema")["policy"]) == {"windows-no-overlap/1+ema"}
    twin = replace(result(TASKS[:1], TASKS[:1]), inputs={**result(TASKS[:1], TASKS[:1]).inputs, "checkpoint": AVERAGE})
    alone = dict(records_of(evaluate(job(tmp_path, twin))).select("item_id", "bpb").iter_rows())
    assert average == alone != raw


def test_a_gap_is_the_difference_of_both_models_own_bits(evaluated, tmp_path):
    """Both results above have each document's bits per byte; the tokenizers are the same here (else:
    test_perplexity_gap)."""
    sides = {"first": MODEL, "second": AVERAGE, "first_tokenizer": TOKENIZER, "second_tokenizer": TOKENIZER}
    node = Node(("gaps", "x"), None, GAP, GapConfig(worst=2), {**sides, "corpora": (CORPUS,)})
    gap = measure_gap(job(tmp_path, node))
    documents = pl.read_parquet(gap.files("documents.parquet")[0])
    records = records_of(evaluated)
    for task, side in zip(HELDOUT, ("first", "second"), strict=True):
        own = dict(records.filter(task=task).select("item_id", "bpb").iter_rows())
        assert dict(documents.select("id", side).iter_rows()) == pytest.approx(own, abs=2e-5)
    totals = (documents["second"] - documents["first"]) * documents["num_bytes"]
    assert totals.is_sorted(descending=True)
    facts = gap.manifest.extra["gap"]
    assert [tag["tag"] for tag in facts["tags"]] == ["", "prose", "prose/books"]
    assert facts["tags"][0]["gap"] == pytest.approx(totals.sum() / documents["num_bytes"].sum(), abs=2e-5)
    assert (len(facts["worst"]), facts["second"]) == (2, "average")
    assert "data:image/png;base64," in gap.files("gap.html")[0].read_text()


def test_what_a_checkpoint_says_is_its_greedy_continuation(evaluated):
    model = load_scorer(evaluated.input("checkpoint")).model
    generated = records_of(evaluated).filter(pl.col("task") == "sums_said", pl.col("item_id") == "0")
    outputs = json.loads(generated["outputs"][0])
    tokens = [START, *render(ITEMS[-4]).prompts[0].encode()[-(RUN.model.max_seq_len - 6) :]]
    bare = len(tokens)
    while len(tokens) < bare + 6:
        logits = logits_of(model, tokens)[-1]
        tokens.append(int(logits.argmax()))
    expected = byte_tokenizer().decode(tokens[bare:])
    (text,) = generated["continuations"][0]
    assert text == expected[: len(text)]
    assert (outputs["finish"], outputs["num_tokens"]) == ("length", 6) or outputs["finish"] == "stop"


def test_a_job_process_leaves_the_same_bytes(evaluated, tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # as this process compiles
    store = job(tmp_path, result()).store
    made = build(store, result())
    assert not made.reused
    assert made.artifact.data_version == evaluated.data_version
    assert build(store, result()).reused


def test_fewer_items_are_a_subset_with_the_same_numbers(evaluated, tmp_path):
    four = (TaskSpec("quiz", "multiple_choice", max_items=4),)
    fewer = evaluate(job(tmp_path, result(four, four)))
    rows = records_of(fewer).rows()
    assert len(rows) == 4
    assert all(row in records_of(evaluated).rows() for row in rows)


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (result((SUMS_AS_CHOICES,), (SUMS_AS_CHOICES,)), "sums is multiple choice, but item 0 has no choices"),
        (result((replace(TASKS[1], max_items=3),)), r"policy does not hold .*'max_items': 3.*it holds .*'max_items': 250"),
        (result(TASKS, seed=2), "has the seed 2, the evaluation 1"),
    ],
)
def test_what_the_policy_or_the_suites_do_not_hold_is_refused_and_commits_nothing(tmp_path, node, message):
    work = job(tmp_path, node)
    with pytest.raises(ValueError, match=message):
        evaluate(work)
    assert work.store.find(work.spec) is None


def test_a_tokenizer_of_another_size_is_refused(tmp_path):
    def write_smaller(out: Writer, config: dict) -> None:
        write_tokenizer(out, config)
        document = json.loads((out.folder / "tokenizer.json").read_text())
        del document["model"]["vocab"]["<|endoftext|>"]
        (out.folder / "tokenizer.json").write_text(json.dumps(document))

    node = result()
    smaller = Node(("tokenizer",), None, Stage("tests.smaller", "1", write_smaller), {})
    with pytest.raises(ValueError, match="has 256 tokens, the checkpoint's model 257"):
        evaluate(job(tmp_path, replace(node, inputs={**node.inputs, "tokenizer": smaller})))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"kind": "vibes"},
            "task x: kind is 'vibes'; allowed: perplexity, trajectories, multiple_choice, gold_bpb, generation, program",
        ),
        ({"name": " "}, "task name is ' '"),
        ({"weights": "swa"}, "task x: weights is 'swa'; allowed: raw, ema"),
        ({"kind": "program", "weights": "ema"}, "a task of kind program takes the raw ones alone"),
        ({"style": "haiku"}, "task x: style is 'haiku'; allowed: cloze, letters, lm_eval"),
        ({"num_shots": -1}, "task x: num_shots is -1; it must be at least 0"),
        ({"max_items": 0}, "task x: max_items is 0; it must be at least 1"),
        ({"max_bytes_per_domain": 3}, "task x: max_bytes_per_domain is 3; it must be at least 4"),
        ({"max_bytes_per_document": 0}, "task x: max_bytes_per_document is 0; it must be at least 4"),
    ],
)
def test_a_bad_task_names_its_field_and_what_is_allowed(fields, message):
    with pytest.raises(ValueError, match=message):
        TaskSpec(**{"name": "x", "kind": "perplexity"} | fields)


@pytest.mark.parametrize("tasks", [(), (TaskSpec("x", "perplexity"), TaskSpec("x", "gold_bpb"))])
def test_a_config_needs_tasks_of_different_names(tasks):
    with pytest.raises(ValueError, match="at least one, each name once"):
        EvalConfig(tasks, seed=0)


def test_what_graded_too_little_is_said_to_be_incomplete(evaluated, tmp_path):
    extra = evaluated.manifest.extra
    unparsed = records_of(evaluated).filter(task="sums_said", verdict="unparsed").height
    assert ("sums_said" in extra["incomplete"]) == (unparsed > 0), "also a task of which nothing was graded"
    accuracies = [s for s in extra["scores"] if s["metric"] == "accuracy"]
    (whole,), (partial,) = ([{**accuracies[0], "n": n, "attempted": 10}] for n in (10, 8))
    assert [scores_table([s]).rows[0][-1] for s in (whole, partial)] == ["10", "8 of 10, incomplete"]
    for name, score in (("whole", whole), ("partial", partial)):
        scores_png([{**score, "metric": "exact_match"}], "t", tmp_path / f"{name}.png")
    assert (tmp_path / "whole.png").read_bytes() != (tmp_path / "partial.png").read_bytes()


def test_scores_become_a_picture_and_other_numbers_do_not(evaluated, tmp_path):
    scores_png(evaluated.manifest.extra["scores"], "title", tmp_path / "scores.png")
    assert (tmp_path / "scores.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="no score is in bits per byte or a share; there are \\['chance'\\]"):
        scores_png([s for s in evaluated.manifest.extra["scores"] if s["metric"] == "chance"], "t", tmp_path / "x.png")
