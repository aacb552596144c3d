"""datatrove blocks as steps of a source. Tests that run a block need the optional package."""

import importlib.metadata
import importlib.util
import json
import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_normalize import FILES, Files

from datakit.documents.normalize import NORMALIZE, NormalizeConfig
from datakit.documents.parts import read_documents
from datakit.readers.datatrove_steps import naming_faults, reason_prefix
from datakit.readers.steps import after, prepared
from datakit.sources.datatrove_blocks import DatatroveStep
from datakit.sources.record import Record, Unreadable
from datakit.sources.source import Records, RepositoryFiles, Source
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.config import from_jsonable, to_jsonable
from lineage.shards.execution import Execution
from lineage.shards.failures import kind_of

FILTERS, FORMATTERS, EXTRACTORS = (f"datatrove.pipeline.{kind}" for kind in ("filters", "formatters", "extractors"))
VERSION = "0.10.1"
LINES = Records("jsonl")
PROSE = (
    "The heron stood in the shallow water and waited for the fish to come near, as it had done that day and the day before. "
)


def step(block: str, **arguments: Any) -> DatatroveStep:
    return DatatroveStep(block, VERSION, arguments)


def needs(*packages: str) -> pytest.MarkDecorator:
    absent = [package for package in packages if importlib.util.find_spec(package) is None]
    return pytest.mark.skipif(bool(absent), reason=f"the optional packages {', '.join(absent)} are not installed")


def through(steps: list[DatatroveStep], *texts: str) -> list[str | None]:
    """The texts that are left, and the reasons of those that are not, in one list."""
    records = after(prepared(steps), [Record(str(i), text) for i, text in enumerate(texts)])
    return [record.reason if isinstance(record, Unreadable) else record.text for record in records]


def normalized(root: Path, texts: list[object], steps: tuple[DatatroveStep, ...], workers: int = 1) -> Artifact:
    lines = [json.dumps({"id": str(i), "text": text}) for i, text in enumerate(texts)]
    half = len(lines) // 2
    raw = Node(("raw",), "s", FILES, Files({"a.jsonl": "\n".join(lines[:half]), "b.jsonl": "\n".join(lines[half:])}))
    config = NormalizeConfig("s", LINES, "prose", steps=steps)
    held, execution = Store(str(root)), Execution(workers)
    build(held, raw, execution=execution)
    return build(held, Node(("normalized",), "s", NORMALIZE, config, {"raw": raw}), execution=execution).artifact


@needs("datatrove", "spacy")
def test_a_real_filter_drops_by_its_own_reasons_and_every_record_is_counted(tmp_path: Path) -> None:
    texts = [PROSE * 4, "Too short.", "# " * 60 + PROSE * 4, "", PROSE * 4, PROSE * 5, None]
    gopher = step(f"{FILTERS}:GopherQualityFilter", min_doc_words=40)
    artifact = normalized(tmp_path, texts, (gopher,))
    assert sorted(read_documents(artifact)["text"]) == sorted([PROSE * 4, PROSE * 5])
    assert artifact.manifest.statistics["drops"] == {
        "empty": 2,
        "exact_duplicate": 1,
        "gopher_quality:gopher_short_doc": 1,
        "gopher_quality:gopher_too_many_hashes": 1,
    }
    assert artifact.manifest.statistics["rows_in"] == len(texts)
    shown = artifact.files("dropped.parquet")[0].read_bytes()
    assert b"Too short." in shown, "the text that a step dropped is shown with its reason"


@needs("datatrove")
def test_a_filter_judges_as_datatrove_itself_does() -> None:
    """The reference is datatrove's own pipeline, with its `run` and statistics, over the same texts."""
    from datatrove.data import Document  # type: ignore[import-not-found]
    from datatrove.pipeline.filters import FineWebQualityFilter, RegexFilter  # type: ignore[import-not-found]

    lines = [f"On day {day} the heron stood in the water and waited for fish." for day in range(12)]
    texts = [
        "\n".join(lines),
        "\n".join(lines[:5]),
        "\n".join(line[:-1] for line in lines),
        "\n".join("ab." for _ in lines),
        "x1",
    ]
    texts += [f"{lines[0]}\n" * 9, "\n".join(["x1", *lines])]
    theirs = FineWebQualityFilter(line_punct_thr=0.5)
    documents = theirs.run(RegexFilter(r"x\d").run(Document(text, str(i)) for i, text in enumerate(texts)))
    kept = [document.text for document in documents]
    ours = through(
        [
            step(f"{FILTERS}:RegexFilter", regex_exp=r"x\d"),
            fineweb := step(f"{FILTERS}:FineWebQualityFilter", line_punct_thr=0.5),
        ],
        *texts,
    )
    assert [text for text in ours if text in texts] == kept
    assert kept == texts[:2]
    prefix = reason_prefix(fineweb)
    reasons = [reason.split(":")[1] for reason in ours if reason and reason.startswith(f"{prefix}:")]
    assert len(reasons) == 3
    assert [theirs.stats[f"dropped_{reason}"].total for reason in reasons] == [1, 1, 1], "datatrove counts the same reasons"
    assert ours[-1] == "regex", "a filter that gives no reason is one"


@needs("datatrove")
def test_formatters_change_texts_and_no_document_depends_on_those_before(tmp_path: Path) -> None:
    steps = [step(f"{FORMATTERS}:PIIFormatter"), step(f"{FORMATTERS}:SymbolLinesFormatter")]
    mail = "Write to someone@somewhere.fr or to other@elsewhere.de.\n=====\nThanks."
    (first, second, bare) = through(steps, mail, mail, "=====")
    assert first == second == "Write to email@example.com or to firstname.lastname@example.org.\nThanks."
    assert bare == ""
    texts: list[object] = [f"{i}: {mail}" for i in range(40)]
    whole = normalized(tmp_path / "whole", [*texts, "====="], tuple(steps))
    again = normalized(tmp_path / "again", [*texts, "====="], tuple(steps), workers=2)
    assert whole.data_version == again.data_version
    assert whole.manifest.statistics["drops"] == {"empty": 1}, "what a step leaves nothing of is dropped as empty"
    small = prepared(steps)
    records = [Record(str(i), str(text)) for i, text in enumerate(texts)]
    assert list(after(small, records))[20:] == list(after(prepared(steps), records[20:])), (
        "where a shard begins changes nothing"
    )


@needs("datatrove", "ftfy")
def test_broken_encodings_are_mended() -> None:
    assert through([step(f"{FORMATTERS}:FTFYFormatter")], "schÃ¶n", "schön") == ["schön", "schön"]


@needs("datatrove", "trafilatura")
def test_an_extractor_makes_text_of_pages() -> None:
    page = f"<html><head><title>x</title></head><body><nav>Home</nav><article><p>{PROSE * 3}</p></article></body></html>"
    extractor = step(f"{EXTRACTORS}:Trafilatura", deduplicate=False)
    assert through([extractor], page, page) == [(PROSE * 3).strip()] * 2


@needs("datatrove")
def test_a_text_that_cannot_be_a_document_never_reaches_a_block() -> None:
    steps = [step(f"{FILTERS}:RegexFilter", regex_exp="."), step(f"{FILTERS}:RegexFilter", regex_exp="half")]
    assert through(steps, "", " \n", "half a \ud800 pair", "x") == ["", " \n", "half a \ud800 pair", "regex"]
    gone = Unreadable("f:1", "unparsable")
    assert list(after(prepared(steps), [gone])) == [gone]


@needs("datatrove")
@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (step(f"{FILTERS}:GopherFilter"), "cannot give it"),
        (step(f"{FILTERS}.base_filter:BaseFilter"), "refuses its arguments"),
        (step(f"{FILTERS}:RegexFilter", regexp="x"), "RegexFilter refuses its arguments .*regexp"),
        (step(f"{FILTERS}.base_filter:DiskWriter"), "is no plain BaseFilter"),
        (replace(step(f"{FILTERS}:RegexFilter", regex_exp="x"), version="0.9.0"), "declares datatrove 0.9.0, and 0.10.1 is"),
        (replace(step(f"{FILTERS}:RegexFilter", regex_exp="x"), beside={"numpy": "1.0"}), "declares numpy 1.0, and"),
    ],
)
def test_what_cannot_run_is_refused_before_the_first_record(declared: DatatroveStep, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prepared([declared])


def test_an_absent_package_stops_before_work_with_the_command(tmp_path: Path) -> None:
    absent = replace(step(f"{FILTERS}:RegexFilter", regex_exp="x"), beside={"no-such-package": "1.2"})
    command = r"(datatrove|no-such-package) (0.10.1|1.2), which is not installed: .*pip install (datatrove|no-such-package)=="
    with pytest.raises(ModuleNotFoundError, match=command):
        prepared([absent])
    with pytest.raises(ModuleNotFoundError, match=command):
        normalized(tmp_path, ["a", "b"], (absent,))


@pytest.mark.parametrize(
    ("block", "arguments", "message"),
    [
        ("datatrove.pipeline.dedup:MinhashDedupFilter", {}, "the whole corpus: `datakit/minhash`"),
        ("datatrove.pipeline.stats:DocStats", {}, "adds up a whole corpus"),
        ("datatrove.pipeline.tokens:DocumentTokenizer", {}, "writes files of its own"),
        ("datatrove.pipeline.writers:JsonlWriter", {}, "the store commits artifacts"),
        ("datatrove.pipeline.readers:JsonlReader", {}, "counts what it cannot read"),
        ("datatrove.pipeline.new:Block", {}, "those of filters, formatters, extractors can"),
        (f"{FILTERS}:LambdaFilter", {}, "no stable form"),
        (f"{FILTERS}:SamplerFilter", {"rate": 0.5}, "draws depend on which documents came before"),
        (f"{FILTERS}:URLFilter", {}, "beside is {}; it must name the version of tldextract"),
        (f"{FILTERS}:RegexFilter", {"exclusion_writer": "x"}, "leave it out"),
        (f"{FILTERS}:RegexFilter", {"regex_exp": object()}, r"arguments\['regex_exp'\] is <object"),
        (f"{EXTRACTORS}:Trafilatura", {}, r"arguments\['deduplicate'\] must be False"),
        (f"{EXTRACTORS}:Trafilatura", {"timeout": 1}, "without one"),
        ("mine.filters:GopherQualityFilter", {}, "it must be like 'datatrove.pipeline.filters:"),
    ],
)
def test_what_is_no_step_is_refused_with_where_to_go(block: str, arguments: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DatatroveStep(block, VERSION, arguments)


@needs("datatrove", "tldextract", "ahocorasick", "fasteners")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # datatrove's own, of tarfile and tldextract
@pytest.mark.parametrize("lists", [False, True])
def test_urls_are_judged_by_lists_of_the_packages_alone(lists: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Left alone the block asks the web for the public suffixes of the day; here nothing answers, and nothing is asked."""

    hosts = list[object]()

    def nobody(host: object, *_: object, **__: object) -> None:
        hosts.append(host)
        raise socket.gaierror("nobody answers here")

    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    monkeypatch.setenv("TLDEXTRACT_CACHE", str(tmp_path / "suffixes"))
    monkeypatch.setattr("huggingface_hub.constants.HF_ASSETS_CACHE", str(tmp_path))
    beside = {"tldextract": importlib.metadata.version("tldextract")}
    arguments = {"extra_domains": ("kumin.co.uk",), "banned_words": ("rostal",), "use_integrated_lists": lists}
    steps = prepared([DatatroveStep(f"{FILTERS}:URLFilter", VERSION, arguments, beside)])
    urls = ("https://news.kumin.co.uk/a", "https://other.co.uk/rostal/b", "https://example.org/weather")
    records = list(after(steps, [Record(str(i), "words", {"url": url}) for i, url in enumerate(urls)]))
    reasons = [record.reason if isinstance(record, Unreadable) else "" for record in records]
    assert reasons == ["url:domain", "url:hard_blacklisted", ""]
    assert hosts == []


TALK = Records("jsonl", text="m", form="messages")


def test_steps_that_change_texts_are_refused_for_conversations() -> None:
    """Tokens are made of the messages, which a step does not see: what it took out would be trained on."""
    loader, formatter = RepositoryFiles(("*",), ""), step(f"{FORMATTERS}:PIIFormatter")
    with pytest.raises(ValueError, match=r"source s: step datatrove\.pipeline\.formatters:PIIFormatter changes a text"):
        Source(
            name="s", loader=loader, format=TALK, domain="chat", licence="MIT", terms="", mixture_weight=1.0, steps=(formatter,)
        )
    assert Source(
        name="s",
        loader=loader,
        format=TALK,
        domain="chat",
        licence="MIT",
        terms="",
        mixture_weight=1.0,
        steps=(step(f"{FILTERS}:RegexFilter", regex_exp="x"),),
    )


@needs("datatrove", "spacy")
def test_a_filter_that_takes_lines_out_of_a_conversation_stops() -> None:
    text = f"user: {PROSE * 3}\n\nassistant: javascript is needed\n{PROSE * 5}"
    talk = Record("r", text, {"conversation": "{}"})
    with pytest.raises(ValueError, match=r"C4QualityFilter takes text out of record r, a conversation"):
        list(after(prepared([step(f"{FILTERS}:C4QualityFilter", filter_no_terminal_punct=False)]), [talk]))


def test_identities_without_steps_stay_and_steps_survive_a_job() -> None:
    source = Source(
        name="s",
        loader=RepositoryFiles(("x",), "0"),
        format=LINES,
        domain="prose",
        licence="CC0-1.0",
        terms="free",
        mixture_weight=1.0,
    )
    bare = NormalizeConfig("s", LINES, "prose")
    assert "steps" not in to_jsonable(source) and "steps" not in to_jsonable(bare)
    repetition = step(f"{FILTERS}:GopherRepetitionFilter", top_n_grams=((2, 0.2), (3, 0.18)), dup_para_frac=None)
    config = replace(bare, steps=(repetition, replace(repetition, beside={"spacy": "3.8.18"})))
    assert to_jsonable(config) != to_jsonable(replace(config, steps=config.steps[:1])) != to_jsonable(bare)
    text = json.dumps(to_jsonable(config))
    assert from_jsonable(NormalizeConfig, json.loads(text)) == config
    with pytest.raises(ValueError, match="steps"):
        replace(source, format="none", trainable=False, steps=(repetition,))


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        ("GopherQualityFilter", "gopher_quality"),
        ("FineWebQualityFilter", "fine_web_quality"),
        ("HTMLPageFilter", "html_page"),
        ("C4QualityFilter", "c4_quality"),
    ],
)
def test_prefixes_of_reasons(name: str, prefix: str) -> None:
    assert reason_prefix(step(f"{FILTERS}:{name}")) == prefix


@pytest.mark.parametrize(
    ("fault", "raised", "kind"),
    [
        (ConnectionResetError("the list of words did not come"), ConnectionResetError, "transient"),
        (TimeoutError("nor the model"), TimeoutError, "transient"),
        (MemoryError(), MemoryError, "memory"),
        (KeyError("lemma"), ValueError, "permanent"),
    ],
)
def test_a_fault_of_the_machine_in_a_block_is_no_fault_of_its_record(
    fault: Exception, raised: type[Exception], kind: str
) -> None:
    """Blocks read their words and models when the first document comes: the shard is tried again."""

    def call() -> None:
        raise fault

    with pytest.raises(raised) as error:
        naming_faults(step(f"{FILTERS}:GopherQualityFilter"), Record("r7", "text"), call)
    assert kind_of(error.value) == kind
    assert "r7" in "".join([str(error.value), *getattr(error.value, "__notes__", [])])
