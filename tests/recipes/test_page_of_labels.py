"""The blocks of docs/recipes/label_with_a_model.md are a lab's recipe file; its labels are inputs of what learns."""

from pathlib import Path

from test_pages_of_blocks import blocks
from test_pages_of_runs import own, read_again

from marin_assets.declared_table import tabled
from recipes import data, lab
from recipes.records.data import Corpus
from recipes.runs import checkpoint
from recipes.studies.default import tiny

__all__ = ["own"]
PAGE = "label_with_a_model.md"


def test_the_file_of_the_page_declares_labels_and_what_learns_from_them(own: Path) -> None:
    (own / "mine.py").write_text("\n".join(blocks(PAGE)))
    read_again()
    table, kept = tabled(lab.declarations())
    assert not kept.broken
    keys = {template.example.key for template in table}
    assert {("labels", "grades"), ("labels", "kinds"), ("scorer", "educational"), ("corpus", "learned")} <= keys
    corpora: dict[str, Corpus] = {corpus.name: corpus for corpus in kept.corpora}
    taught, learned = corpora["taught"], corpora["learned"]
    assert taught.scorer is not None and learned.domain_model is not None
    judged = data.scorer(taught.scorer).inputs["labels"]
    assert [each.partition for each in judged] == ["wiki", "package_docs"]
    assert "domains" in data.corpus(learned, "wiki").inputs and "scores" in data.corpus(taught, "wiki").inputs
    names: dict = {}
    exec("\n".join(blocks(PAGE)), names)
    by_labels = data.domain_model(names["by_kind"]).inputs["labels"]
    assert by_labels[0].inputs["model"] is checkpoint(tiny(), tiny().spec.num_steps)
