"""The asset graph: it loads, it is documented, its edges equal those of its nodes."""

import re
import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest
import yaml

from datakit.documents.normalize import normalize
from evals.reports.report import write_report
from jobs.automation import VARIABLE, is_on
from lineage.build.nodes import ancestors_first
from marin_assets.areas import OWNER_OF_GROUP, owners
from marin_assets.cli.materialize import trainings
from marin_assets.declared_table import tabled
from marin_assets.definitions import build_defs, declared_templates
from marin_assets.factory import dependencies
from marin_assets.ferry import working_ferry
from marin_assets.runs import LaunchRefusedError
from partitions.axes import days
from recipes.daily import daily_ferry
from recipes.lab import Broken, Declarations, declarations
from recipes.own_recipes import FOLDER_VARIABLE
from recipes.records.data import decontamination
from recipes.records.sweep import Sweep
from recipes.runs import audit
from recipes.smoke import smoke_ferry
from recipes.sources import own_recipes
from recipes.studies.default import tiny
from resources.lab import LabResource

BROKEN_FERRY = """
from recipes.study import Study


def study():
    return Study("What if the ferry has a mistake?")


def ferry():
    raise ValueError("no warm-up")
"""
GOLDEN = Path(__file__).with_name("asset_graph.golden.txt")


def test_definitions_load(real_definitions: dg.Definitions) -> None:
    dg.Definitions.validate_loadable(real_definitions)


def test_every_asset_says_what_it_is_and_whose(real_definitions: dg.Definitions) -> None:
    for spec in real_definitions.resolve_all_asset_specs():
        name = spec.key.to_user_string()
        assert spec.description, name
        assert spec.owners, name
        assert spec.owners == owners(str(spec.group_name)), name
        assert spec.code_version, name
        assert spec.kinds, name


def test_groups_are_few_and_by_purpose(real_definitions: dg.Definitions) -> None:
    sizes = Counter(spec.group_name for spec in real_definitions.resolve_all_asset_specs())
    assert len(sizes) <= 15 and "broken" not in sizes
    assert set(sizes) <= set(OWNER_OF_GROUP)


def test_what_is_made_every_day_says_by_when(real_definitions: dg.Definitions) -> None:
    due = {spec.key.to_user_string() for spec in real_definitions.resolve_all_asset_specs() if spec.freshness_policy}
    assert due == {"ferry/report", "leaderboard", *(f"canary/{each.hardware}" for each in declarations().canaries)}


@pytest.mark.parametrize("key", [["runs", "tiny", "training"], ["runs", "tiny", "eval_result"]])
def test_an_asset_that_a_job_makes_refers_to_its_program(key: list[str], real_definitions: dg.Definitions) -> None:
    asset = real_definitions.resolve_assets_def(dg.AssetKey(key))
    (reference,) = asset.metadata_by_key[dg.AssetKey(key)]["dagster/code_references"].code_references
    assert "def main(" in Path(reference.file_path).read_text() and reference.label.startswith("python -m ")


def test_an_asset_refers_to_the_function_that_makes_it(real_definitions: dg.Definitions) -> None:
    for key, function in ((["datakit", "normalized"], normalize), (["ferry", "report"], write_report)):
        asset = real_definitions.resolve_assets_def(dg.AssetKey(key))
        (reference,) = asset.metadata_by_key[dg.AssetKey(key)]["dagster/code_references"].code_references
        lines = Path(reference.file_path).read_text().splitlines()
        assert lines[reference.line_number - 1].startswith(f"def {function.__name__}(")


@pytest.mark.parametrize(("setting", "running"), [(None, False), ("off", False), ("on", True)])
def test_opening_the_ui_starts_no_work_unless_the_deployment_says_so(
    setting: str | None, running: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if setting is not None:
        monkeypatch.setenv(VARIABLE, setting)
    definitions = build_defs(LabResource(root=str(tmp_path)), ferry=smoke_ferry(), declared=Declarations())
    automation = [*(definitions.schedules or ()), *(definitions.sensors or ())]
    starts = {each.name: each.default_status.value == "RUNNING" for each in automation}
    assert starts.pop("committed_artifacts") is True  # it reports what jobs commit and requests no run
    assert len(starts) >= 8 and set(starts.values()) == {running}


def test_a_refused_launch_names_the_one_command_first_and_what_is_missing_in_one_line(
    real_definitions: dg.Definitions,
) -> None:
    asset = real_definitions.resolve_assets_def(dg.AssetKey(["runs", "tiny", "training"]))
    with dg.instance_for_test() as instance, pytest.raises(LaunchRefusedError) as refused:
        dg.materialize([asset], instance=instance, selection=[asset.key])
    (line,) = str(refused.value).splitlines()
    assert line.startswith("`./marin materialize runs/tiny/training` makes what is missing")
    assert "datakit/raw[kjv], " in line and "datakit/normalized" not in line
    assert len(refused.value.findings) > 5


def test_a_wrong_word_for_automation_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "yes")
    with pytest.raises(ValueError, match="MARIN_AUTOMATION is 'yes'; give on or off"):
        is_on()


def test_every_ferry_asset_has_the_day_as_its_one_partition(real_definitions: dg.Definitions) -> None:
    ferry = [spec for spec in real_definitions.resolve_all_asset_specs() if spec.key.path[0] == "ferry"]
    assert len(ferry) > 50
    assert {spec.partitions_def for spec in ferry} == {days()}


def test_canonical_keys_and_edges_are_the_reviewed_ones(real_definitions: dg.Definitions) -> None:
    """Lineage is our public contract: a changed key or edge is a reviewed diff of the golden file."""
    lines = []
    for spec in sorted(real_definitions.resolve_all_asset_specs(), key=lambda s: s.key):
        if spec.key.path[0] != "ferry":
            deps = ", ".join(sorted(dep.asset_key.to_user_string() for dep in spec.deps))
            lines.append(f"{spec.key.to_user_string()} <- {deps}" if deps else spec.key.to_user_string())
    assert "\n".join(lines) + "\n" == GOLDEN.read_text()


def test_the_edges_of_an_asset_are_the_inputs_of_its_node() -> None:
    for asset in tabled(declarations())[0]:
        if not asset.is_external:
            wanted = {parent.key for parent in asset.example.parents()}
            assert {tuple(dep.asset_key.path) for dep in dependencies(asset)} == wanted


def test_a_corpus_partition_depends_on_its_own_source_only(real_definitions: dg.Definitions) -> None:
    graph = real_definitions.resolve_asset_graph()
    upstream = graph.get_parent_partition_keys_for_child(
        "kjv", dg.AssetKey(["datakit", "normalized"]), dg.AssetKey(["corpus", "default"])
    )
    assert list(upstream.partitions_subset.get_partition_keys()) == ["kjv"]


def test_every_ancestor_of_every_declared_run_is_what_its_asset_makes() -> None:
    table, declared = tabled(declarations())
    assert not declared.broken
    assets = {asset.example.key: asset for asset in table}
    for run in declared.runs:
        for node in ancestors_first([audit(run, run.spec.num_steps)]):
            assert assets[node.key].node(node.partition) == node, (run.name, node.name)


def test_a_run_that_means_another_artifact_by_a_key_is_disabled_alone(caplog: pytest.LogCaptureFixture) -> None:
    """The index of a decontamination keeps a proof over its clean sources: over fewer sources it is another index."""
    base = tiny()
    scope = replace(base.scope, name="f", sources=("sotu", "python_topics"))
    cleaned = decontamination(base.decontamination.name, base.decontamination.suites, scope.sources)
    corpus = replace(base.corpus, name="f", scope=scope, decontamination=cleaned)
    tokens = replace(base.tokens, name="f", corpus=corpus, tokenizer=replace(base.tokens.tokenizer, name="f"))
    fewer = replace(base, spec=replace(base.spec, name="f"), data=replace(base.data, name="f", tokens=tokens))
    _, declared = tabled(Declarations(runs=(base, fewer)))
    assert declared.runs == (base,)
    message = (
        r"f \(.*\) is disabled: two declarations mean different artifacts by contamination_index/.*made from datakit/normalized"
    )
    assert re.search(message, caplog.text)
    named = replace(corpus, decontamination=replace(cleaned, name="f"))
    other = fewer.with_data(replace(fewer.data, tokens=replace(tokens, corpus=named)))
    assert tabled(Declarations(runs=(base, other)))[1].runs == (base, other)


def test_runs_and_trials_need_no_jobs_or_sensors_of_their_own(tmp_path: Path) -> None:
    """Twelve more runs and a sweep of twelve trials: the same jobs and sensors, and three assets for the sweep."""
    base = tiny()
    runs = tuple(replace(base, spec=replace(base.spec, name=f"r{i}", seed=i)) for i in range(12))
    trials = tuple(replace(run, spec=replace(run.spec, save_every_steps=None)) for run in runs)
    declared = Declarations(runs=(base, *runs), sweeps=(Sweep("s", trials),))
    definitions = build_defs(LabResource(root=str(tmp_path)), ferry=smoke_ferry(), declared=declared)
    assert len(list(definitions.jobs or ())) <= 20
    assert len(list(definitions.sensors or ())) <= 12
    keys = {spec.key.to_user_string() for spec in definitions.resolve_all_asset_specs()}
    assert {key for key in keys if key.startswith("sweeps/")} == {"sweeps/s/trial", "sweeps/s/result", "sweeps/s/table"}
    assert {f"runs/{run.name}/training" for run in runs} <= keys


def test_pyproject_and_workspace_name_the_same_definitions() -> None:
    root = Path(__file__).resolve().parents[2]
    pyproject = tomllib.loads((root / "pyproject.toml").read_text())
    workspace = yaml.safe_load((root / "workspace.yaml").read_text())
    module = pyproject["tool"]["dg"]["project"]["code_location_target_module"]
    assert module == workspace["load_from"][0]["python_module"]["module_name"] == "marin_assets.definitions"
    assert "dagster" not in pyproject["tool"]


def test_a_mistake_in_the_ferry_disables_the_ferry_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own/mine.py").write_text(BROKEN_FERRY)
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "own"))
    caches = (own_recipes, daily_ferry)
    for cached in caches:
        cached.cache_clear()
    broken = working_ferry()
    monkeypatch.undo()
    for cached in caches:
        cached.cache_clear()
    assert isinstance(broken, Broken) and "mine.py" in str(broken) and "no warm-up" in str(broken)
    definitions = build_defs(LabResource(root=str(tmp_path)), ferry=None, declared=Declarations(broken=(broken,)))
    dg.Definitions.validate_loadable(definitions)
    keys = {spec.key.to_user_string() for spec in definitions.resolve_all_asset_specs()}
    assert "broken/ferry" in keys and not any(key.startswith("ferry/") for key in keys)
    assert "leaderboard" in keys and "operations/ferry_pass_rate" in keys


def test_every_ancestor_of_an_asset_has_an_asset_that_makes_it() -> None:
    """So that `marin materialize` makes whatever is missing, such as the run from which branches start (2026-11-27)."""
    examples = [template.example for template in declared_templates()]
    made = {node.key for node in examples} | trainings().keys()
    assert ("runs", "tiny", "checkpoint") in made
    assert [node.name for node in ancestors_first(examples) if node.key not in made] == []
