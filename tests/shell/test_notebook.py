"""The notebook API and the example notebook, over a finished ferry."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from small import FinishedFerry, repository

from lineage.artifact.locate import locate
from marin_assets import lab
from resources.stores import lab_stores

CHECKPOINT = "ferry/runs/smoke/checkpoint"


@pytest.fixture
def opened(finished_ferry: FinishedFerry) -> lab.OpenLab:
    return lab.open(finished_ferry.resource.root)


def cells(notebook: Path) -> Iterator[str]:
    """The code of a notebook in the percent format, cell by cell."""
    for cell in notebook.read_text().split("# %%")[1:]:
        kind, _, code = cell.partition("\n")
        if "[markdown]" not in kind:
            yield code


def test_the_example_notebook_runs_from_top_to_bottom(
    finished_ferry: FinishedFerry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MARIN_ROOT", finished_ferry.resource.root)
    names: dict[str, object] = {}
    for code in cells(repository() / "docs/notebooks/a_first_look.py"):
        exec(code, names)
    frames = {name: value for name, value in names.items() if isinstance(value, pl.DataFrame)}
    assert frames.keys() == {"scores", "curve", "lineage", "reads", "cost"}
    assert all(frame.height for frame in frames.values())
    assert "loss_nats" in capsys.readouterr().out


def test_frames_say_what_the_artifacts_say(opened: lab.OpenLab, finished_ferry: FinishedFerry) -> None:
    checkpoint = locate(lab_stores(finished_ferry.resource.root), CHECKPOINT)
    facts = checkpoint.manifest.extra["checkpoint"]
    curve = opened.curve(CHECKPOINT)
    assert curve["step"].to_list() == list(range(1, facts["step"] + 1))
    assert curve["tokens_seen"].last() == facts["tokens_seen"]
    lineage = opened.lineage(CHECKPOINT)
    assert set(lineage["artifact"]) == {each.name for each in checkpoint.store.walk_up(checkpoint)}
    assert opened.scores()["checkpoint"].unique().to_list() == [checkpoint.data_version]
    assert opened.query("select count(*) as n from checkpoints")["n"].item() >= 1


def test_the_reads_of_all_documents_are_the_sequences_of_training(opened: lab.OpenLab) -> None:
    """Every sequence of every batch reads some document: no step and no row of a batch is missing."""
    spec = opened.artifact(CHECKPOINT).spec.config["run"]
    lineage = opened.lineage(CHECKPOINT)
    corpora = [opened.artifact(name) for name in lineage.filter(pl.col("stage") == "datakit.corpus")["artifact"]]
    ids = [pl.read_parquet(corpus.files(".parquet", under="train/"), columns=["id"])["id"] for corpus in corpora]
    reads = opened.exposure(CHECKPOINT, documents=pl.concat(ids).to_list())
    assert reads.select("step", "row").n_unique() == spec["num_steps"] * spec["batch_size"]


def test_a_question_that_names_nothing_or_both_is_refused(opened: lab.OpenLab) -> None:
    for arguments in ({}, {"documents": ["0" * 32], "item": "mmlu/1"}):
        with pytest.raises(ValueError, match="give documents, or an item"):
            opened.exposure(CHECKPOINT, **arguments)


def test_curves_of_several_checkpoints_keep_their_names(opened: lab.OpenLab) -> None:
    both = opened.curves([CHECKPOINT, CHECKPOINT])
    assert both["checkpoint"].unique().to_list() == [CHECKPOINT]
    assert opened.curves([]).height == 0
