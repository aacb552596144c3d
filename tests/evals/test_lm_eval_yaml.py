"""YAML tasks of lm-eval as tasks of ours: the recorded scores of lm-eval itself, and what is refused."""

import json
from pathlib import Path

import pytest
from jinja2.exceptions import SecurityError
from lm_eval_cases import NUM_SHOTS, write_documents
from lm_eval_ours import adapted, our_scores, read_items

from evals.items.prompts import render
from evals.items.tasks.lm_eval_metrics import read_filters
from evals.items.tasks.lm_eval_yaml import lm_eval_task, parse_yaml, read_yaml

RECORDED = json.loads(Path(__file__).with_name("lm_eval_scores.json").read_text())
PLAIN = """
task: plain
output_type: multiple_choice
doc_to_text: "Q: {{question}}"
doc_to_target: gold
doc_to_choice: options
description: "Choose.\\n\\n"
target_delimiter: " -> "
fewshot_delimiter: "\\n---\\n"
metric_list:
  - metric: acc
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("documents")
    write_documents(folder)
    return folder


@pytest.mark.parametrize("name", NUM_SHOTS)
def test_scores_are_those_that_lm_eval_gave(name, folder):
    """Recorded with lm-eval 0.4.13 by `benchmarks/lm_eval_yaml.py --record`, over the same documents and the same
    model."""
    ours = our_scores(name, folder)
    assert {metric: ours[metric] for metric in RECORDED[name]} == pytest.approx(RECORDED[name], rel=1e-9, abs=0)


def test_a_prompt_has_the_description_the_examples_and_the_delimiters(tmp_path):
    rows = [{"question": f"{n}?", "gold": n % 2, "options": ["yes", "no"]} for n in range(2)]
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = lm_eval_task(parse_yaml(PLAIN))
    shot, item = read_items(task, tmp_path / "d.jsonl")
    rendered = render(item, "lm_eval", [shot], task)
    assert rendered.prompts == ("Choose.\n\nQ: 0? -> yes\n---\nQ: 1?",) * 2
    assert (rendered.continuations, rendered.gold) == ((" -> yes", " -> no"), 1)


def test_winogrande_scores_what_follows_the_blank_behind_each_choice(folder):
    task = adapted("winogrande")
    item = read_items(task, folder / "winogrande.jsonl")[0]
    rendered = render(item, "lm_eval", (), task)
    assert len(set(rendered.prompts)) == 2 and len(set(rendered.continuations)) == 1
    assert rendered.prompts[rendered.gold] + rendered.continuations[0] == rendered.solved


def test_a_file_includes_another_and_changes_it(tmp_path):
    (tmp_path / "base.yaml").write_text(PLAIN)
    (tmp_path / "task.yaml").write_text("include: base.yaml\ntask: changed\n")
    config = read_yaml(tmp_path / "task.yaml")
    assert (config["task"], config["doc_to_target"]) == ("changed", "gold")
    with pytest.raises(ValueError, match=r"task changed includes 'base\.yaml'; read the file with read_yaml"):
        parse_yaml((tmp_path / "task.yaml").read_text())


def test_a_template_cannot_reach_python(tmp_path):
    (tmp_path / "d.jsonl").write_text(json.dumps({"question": "?", "gold": 0, "options": ["a", "b"]}) + "\n")
    hostile = PLAIN.replace("Q: {{question}}", "{{ question.__class__.__mro__[1].__subclasses__() }}")
    with pytest.raises(SecurityError):
        read_items(lm_eval_task(parse_yaml(hostile)), tmp_path / "d.jsonl")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("process_results: !function utils.f", "sets process_results"),
        ("repeats: 3", "sets repeats to 3, which is not supported"),
        ("output_type: loglikelihood_rolling", "output_type is 'loglikelihood_rolling'; allowed: multiple_choice"),
        ("doc_to_choice: null", "is multiple choice, but has no doc_to_choice"),
        ("metric_list: [{metric: f1}]", "metric is 'f1'; allowed for multiple_choice: acc, acc_norm, acc_bytes"),
        ("metric_list: [{metric: acc, aggregation: median}]", "aggregation of acc is 'median'; allowed: mean"),
        ("metric_list: null", "lacks metric_list"),
        ("fewshot_config: {samples: []}", "fewshot_config sets samples; allowed: sampler, split"),
        ("doc_to_text: !function utils.text", "needs the functions utils.text; give them by name"),
        ("description: 'About {{subject}}.'", "only a constant description is supported"),
        ("filter_list: [{name: f, filter: [{function: majority_vote}]}]", "filter step 0 is 'majority_vote'; allowed: regex"),
        ("generation_kwargs: {do_sample: true, temperature: 1.0}", "samples its texts; this lab generates greedily"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        lm_eval_task(parse_yaml(PLAIN) | parse_yaml(change))


def test_a_document_with_several_right_answers_is_refused(tmp_path):
    (tmp_path / "d.jsonl").write_text(json.dumps({"question": "?", "gold": [0, 1], "options": ["a", "b"]}) + "\n")
    with pytest.raises(ValueError, match="item 00000 has 2 right answers"):
        read_items(lm_eval_task(parse_yaml(PLAIN)), tmp_path / "d.jsonl")


def test_a_regex_that_does_not_match_gives_its_fallback_to_the_next_one():
    steps = [{"function": "regex", "regex_pattern": "a(b|c)"}, {"function": "regex", "regex_pattern": "(b)|(invalid)"}]
    (chosen,) = read_filters("t", [{"name": "f", "filter": steps}])
    assert [chosen.apply(text) for text in ("xab", "xac", "zzz")] == ["b", "[invalid]", "invalid"]
    assert [chosen.find(text) for text in ("xab", "xac", "zzz")] == ["b", None, None]
