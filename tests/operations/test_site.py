"""The public site: what is on it and what must not be, links, escaping, incremental builds, kills, and the form of pages."""

import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples
from site_worlds import Walk, all_files, build, colours, contrast, page_of, pages, put, put_lineage

from lineage.artifact.made_by import MadeBy
from lineage.artifact.store import Store
from lineage.trust.verdicts import quarantine
from operations.site.names import KINDS, shown
from operations.site.veil import veil_of


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "artifacts"))


def test_every_kind_has_pages_and_every_link_leads_somewhere(store: Store, tmp_path: Path) -> None:
    put_lineage(store)
    build(tmp_path / "site", store)
    found = pages(tmp_path / "site")
    assert {path.split("/")[0] for path in found if "/" in path} == {*KINDS, "kind", "month"}
    for path, text in found.items():
        for link in Walk(text).links:
            target = (tmp_path / "site" / path).parent / link
            assert target.is_file(), (path, link)
    listed = {row[4] for row in json.loads((tmp_path / "site/search.js").read_text().split("= ", 1)[1].rstrip(";\n"))}
    assert listed == set(found)


def test_links_between_an_artifact_and_its_inputs_run_both_ways(store: Store, tmp_path: Path) -> None:
    made = put_lineage(store)
    build(tmp_path / "site", store)
    found = pages(tmp_path / "site")
    path_of = {text.split("<h1>")[1].split("</h1>")[0].split(", step")[0]: path for path, text in found.items()}
    for child in made.values():
        for ref in child.spec.inputs:
            parent = path_of[store.open(ref.address).name]  # type: ignore[union-attr]
            assert f"../{parent}" in Walk(found[path_of[child.name]]).links
            assert f"../{path_of[child.name]}" in Walk(found[parent]).links


def test_pages_show_scores_costs_cards_and_verdicts(store: Store, tmp_path: Path) -> None:
    put_lineage(store)
    build(tmp_path / "site", store)
    run = page_of(tmp_path / "site", "runs/x0")
    for wanted in ("3.25", "1.125", "1 to 1.25", "clean", "MIT", "cost of all attempts", "hidden_dim", 'svg class="lineage"'):
        assert wanted in run, wanted
    assert "1 to 2" not in run and "[1, 2]" in page_of(tmp_path / "site", "forecasts/x0")


PLANTED = {
    "host": "box-17.rack",
    "user": "grace-hopper",
    "path": "/srv/lab-disk/ferry/x.bin",
    "home": "~/private/notes.txt",
    "token": "hf_abcdefghijklmnopqrstuv",
    "key": "AKIAABCDEFGHIJKLMNOP",
    "bearer": "Bearer abcdefghijklmnop",
    "bucket": "gs://hidden-bucket/folder",
    "address": "10.1.2.3:8080",
    "internal": "queue.prod.internal",
    "mail": "grace@navy.example",
    "login": "https://u:pw12345@hub.example/x",
    "query": "https://hub.example/x?sig=q9q9q9q9",
    "assigned": "password=correcthorse",
}


def test_hosts_users_paths_and_tokens_are_nowhere_on_the_site(store: Store, tmp_path: Path) -> None:
    by = MadeBy(PLANTED["user"], PLANTED["host"], "c0ffee")
    for number, text in enumerate(PLANTED.values()):
        sentence = f"see {text} now"
        facts = {"source": {"name": sentence, "licence": "MIT", "terms": sentence, "loader": {"member": [sentence]}}}
        made = put_lineage(store, number, code_fingerprint=sentence, run_id=sentence, made_by=by)
        put(
            store, f"datakit/raw:p{number}", "datakit.raw", config={"api_key": "zq-zq-zq", "deep": {"a": sentence}}, extra=facts
        )
        put(store, f"other/p{number}", "lab.other", statistics={sentence: 1, "a": sentence}, config={sentence: sentence})
        quarantine(made["suite"], f"because of {text}", PLANTED["user"])
    broken = tmp_path / "artifacts/datakit/raw/x0/00"
    broken.mkdir(parents=True)
    (broken / "manifest.json").write_text('{"schema": "' + "/srv/lab-disk/ferry/x.bin" + '"}')
    build(tmp_path / "site", store)
    whole = b"\n".join(all_files(tmp_path / "site").values()).decode().lower()
    for text in (
        "box-17.rack",
        "grace",
        "/srv/lab-disk",
        "private/notes",
        "hf_abc",
        "akiaabc",
        "abcdefghijklmnop",
        "hidden-bucket",
    ):
        assert text not in whole, text
    for text in ("10.1.2.3", "prod.internal", "navy", "pw12345", "q9q9q9q9", "correcthorse", "zq-zq-zq", str(tmp_path).lower()):
        assert text not in whole, text
    assert "hub.example/x" in whole


def test_text_under_a_closed_licence_is_not_shown_and_the_page_says_so(store: Store, tmp_path: Path) -> None:
    put_lineage(store, 1)
    put_lineage(store, 2, licence={"claim": "MIT", "why": "nobody looked"})
    put_lineage(store, 3, licence="proprietary")
    build(tmp_path / "site", store)
    opened, claimed, closed = (page_of(tmp_path / "site", f"datakit/raw[x{n}]") for n in (1, 2, 3))
    assert "secretglob" in opened and "are not shown" not in opened
    assert "secretglob" not in claimed and "is not verified" in claimed
    assert "secretglob" not in closed and "proprietary" in closed and "are not shown" in closed


def test_the_content_of_what_is_quarantined_is_nowhere(store: Store, tmp_path: Path) -> None:
    made = put_lineage(store)
    build(tmp_path / "site", store)
    assert "1.125" in page_of(tmp_path / "site", "runs/x0") and "3.25" in page_of(tmp_path / "site", "runs/x0")
    quarantine(made["result"], "a leaked test set", "ada")
    quarantine(made["checkpoint"], "a leaked test set", "ada")
    build(tmp_path / "site", store)
    for text in pages(tmp_path / "site").values():
        assert "1.125" not in text
    page = page_of(tmp_path / "site", "runs/x0/checkpoint, step 9")
    assert "It is quarantined" in page and "3.25" not in page and "hidden_dim" not in page
    assert "3.25" not in page_of(tmp_path / "site", "runs/x0")
    assert "a leaked test set" in (tmp_path / "site/wrong.html").read_text()
    quarantine(made["result"], "it was none", "ada", standing=False)
    build(tmp_path / "site", store)
    assert "1.125" in page_of(tmp_path / "site", "runs/x0/eval_result")


HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=30).map(lambda text: f"{text}{HOSTILE}{text}")
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("source", "checkpoint", "throughput", "scores", "audit", "suite", "forecast", "verdict", "policy")


@settings(max_examples=examples(12))
@given(data=st.data())
def test_no_text_of_a_manifest_becomes_markup(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    root = tmp_path_factory.mktemp("hostile")
    store = Store(str(root / "artifacts"))
    stages = (
        "datakit.raw",
        "datakit.corpus",
        "evals.suite",
        "trainer.checkpoint",
        "evals.result",
        "evals.audit",
        "science.forecast",
    )
    before = None
    for number, stage in enumerate(stages):
        extra = {name: data.draw(values) for name in FIELDS}
        config = {"run": data.draw(values), HOSTILE: data.draw(values), "step": data.draw(values)}
        inputs = () if before is None else ((f"{HOSTILE}", before),)
        text = data.draw(texts)
        fields = {"statistics": {"drops": data.draw(values), text: text}, "created": text, "run_id": text}
        try:
            before = put(store, f"a/b{number}", stage, *inputs, config=config, extra=extra, **fields)
        except (ValueError, TypeError):  # no manifest can hold it
            continue
    build(root / "site", store)
    allowed = {"script.js", "search.js"}
    for path, page in pages(root / "site").items():
        walk = Walk(page)
        scripts = [attributes for tag, attributes in walk.tags if tag == "script"]
        assert {one["src"].rsplit("/", 1)[-1] for one in scripts} == allowed and len(scripts) == 2, path
        assert not [tag for tag, _ in walk.tags if tag == "img"], path
        assert not [name for _, attributes in walk.tags for name in attributes if name.startswith("on")], path
    assert "<script" not in (root / "site/search.js").read_text()


def test_a_broken_manifest_is_named_and_stops_nothing(store: Store, tmp_path: Path) -> None:
    made = put_lineage(store)
    path = tmp_path / "artifacts" / made["suite"].spec.address / "manifest.json"
    path.write_text(path.read_text().replace("gsm8k", "gsm9k"))
    written = build(tmp_path / "site", store)
    assert len(written.unreadable) == 1
    page = (tmp_path / "site/unreadable.html").read_text()
    assert "eval_suite/x0" in page and "it was edited" in page
    assert "not here any more" in page_of(tmp_path / "site", "runs/x0/eval_result")


def test_only_pages_that_changed_are_written_and_pages_of_the_vanished_go(store: Store, tmp_path: Path) -> None:
    for number in range(5):
        put_lineage(store, number)
    site = tmp_path / "site"
    first = build(site, store)
    assert first.written == first.pages
    times = {path: path.stat().st_mtime_ns for path in site.rglob("*.html")}
    assert build(site, store).written == 0
    new = put(store, "other/new", "lab.other")
    assert build(site, store).written == 4  # the page, the index of its kind and of its month, the home page
    assert sum(path.stat().st_mtime_ns != times.get(path) for path in site.rglob("*.html")) == 4
    store.delete(new)
    gone = build(site, store)
    assert gone.deleted == 1 and not list(site.glob("artifact/other-new*"))
    (site / "wrong.html").unlink()
    assert build(site, store).written == 1 and (site / "wrong.html").is_file()


def test_a_hostile_index_deletes_nothing_but_pages(store: Store, tmp_path: Path) -> None:
    put_lineage(store)
    (tmp_path / "precious.html").write_text("keep")
    (tmp_path / "site").mkdir()
    (tmp_path / "site/notes.txt").write_text("keep")
    (tmp_path / "site/.site.json").write_text(json.dumps({"../precious.html": "1", "notes.txt": "2", "run/../notes.txt": "3"}))
    build(tmp_path / "site", store)
    assert (tmp_path / "precious.html").is_file() and (tmp_path / "site/notes.txt").is_file()
    (tmp_path / "site/.site.json").write_text("no json")
    again = build(tmp_path / "site", store)
    assert again.written == again.pages


KILLED = """
import sys
from pathlib import Path
from site_worlds import build
from lineage.artifact.store import Store
build(Path(sys.argv[1]), Store(sys.argv[2]))
"""


@pytest.mark.slow
def test_a_killed_build_leaves_whole_pages_and_the_next_one_ends_it(store: Store, tmp_path: Path) -> None:
    for number in range(30):
        put_lineage(store, number)
    site = tmp_path / "site"
    paths = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[2])])
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(site), store.root], env={**os.environ, "PYTHONPATH": paths})
    while process.poll() is None and len(list(site.rglob("*.html"))) < 20:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert all(text.endswith("</html>\n") for path, text in pages(site).items() if not Path(path).name.startswith("."))
    build(site, store)
    build(tmp_path / "fresh", store)
    left = {name for name in all_files(site) if Path(name).name.startswith(".") and name != ".site.json"}  # half a file, hidden
    assert {name: data for name, data in all_files(site).items() if name not in left} == all_files(tmp_path / "fresh")


def test_without_the_database_all_is_the_same_but_the_pass_rates(store: Store, tmp_path: Path) -> None:
    put_lineage(store)
    build(tmp_path / "with", store, campaigns={"ferry": {"runs": 4, "passed": 3}})
    build(tmp_path / "without", store)
    one, other = all_files(tmp_path / "with"), all_files(tmp_path / "without")
    assert {name for name in one | other if one.get(name) != other.get(name)} == {"index.html", ".site.json"}
    assert "only Dagster" in other["index.html"].decode() and "only Dagster" not in one["index.html"].decode()


def test_pages_have_a_language_one_title_headings_in_order_and_named_regions(store: Store, tmp_path: Path) -> None:
    put_lineage(store)
    build(tmp_path / "site", store)
    for path, text in pages(tmp_path / "site").items():
        tags = Walk(text).tags
        names = [tag for tag, _ in tags]
        ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
        assert ("html", {"lang": "en"}) in tags and names.count("main") == 1 and names.count("h1") == 1, path
        levels = [int(tag[1]) for tag in names if tag in ("h1", "h2", "h3")]
        assert all(after <= before + 1 for before, after in pairwise(levels)), path
        assert len(ids) == len(set(ids)), path
        for tag, attributes in tags:
            if "wide" in attributes.get("class", "").split() or tag == "pre":
                assert attributes["tabindex"] == "0" and attributes["role"] == "region", path
                assert attributes.get("aria-label") or attributes["aria-labelledby"] in ids, path
            if tag == "input":
                assert ("label", {"for": attributes["id"]}) in tags, path


def test_texts_have_contrast_in_light_and_dark(store: Store, tmp_path: Path) -> None:
    build(tmp_path / "site", store)
    for scheme in colours((tmp_path / "site/style.css").read_text()):
        for text, back in (
            ("text", "back"),
            ("text", "soft"),
            ("dim", "back"),
            ("dim", "soft"),
            ("link", "back"),
            ("warn", "warn-back"),
        ):
            assert contrast(scheme[text], scheme[back]) >= 4.5, (text, back)


def test_ordinary_texts_pass_the_veil() -> None:
    veil = veil_of(["ada", "unknown", ""])
    for text in (
        "runs/tiny/checkpoint[2026-11-20], step 40",
        "num_tokens: 1,388,627",
        "CC-BY-SA-4.0",
        "and/or 3/4",
        "0.95 to 1.1",
    ):
        assert veil(text) == text
    assert veil("https://huggingface.co/x/y") == "https://huggingface.co/x/y"
    assert veil("by Ada, at adaptation") == "by [name hidden], at adaptation"


def test_numbers_are_read_without_exponents_as_far_as_people_read_them() -> None:
    assert [shown(value) for value in (43_630.4, 1e4, 0.004, 2.5e13, 1234)] == ["43,630", "10,000", "0.004", "2.5e+13", "1,234"]
