"""Personal data and secrets are replaced, counted, and nothing else is touched."""

import json
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_normalize import FILES, Files

from datakit.cards.page import Note
from datakit.cards.sections import redacted_note
from datakit.documents.normalize import NORMALIZE, NormalizeConfig
from datakit.documents.parts import read_documents
from datakit.readers.redact import placeholder, redactor
from datakit.readers.steps import after, prepared
from datakit.sources.datatrove_blocks import DatatroveStep
from datakit.sources.record import Record
from datakit.sources.redaction import KINDS, RedactedKind, Redaction
from datakit.sources.source import Records, RepositoryFiles, Source
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.config import from_jsonable, to_jsonable
from lineage.shards.execution import Execution
from lineage.storage.digests import text_digest

ALL = redactor(Redaction(KINDS))
KEY_LINES = "\n".join(["MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"] * 3)
PEM = f"-----BEGIN RSA PRIVATE KEY-----\nDEK-Info: AES-128-CBC,1F\n\n{KEY_LINES}\n-----END RSA PRIVATE KEY-----"
FOUND: dict[RedactedKind, tuple[str, ...]] = {
    "email": (
        "jane.doe+list@mail.kumin.co.uk",
        "o'brien@kumin.org",
        "jörg_m%x@müller.de",
        "A1@x-y.museum",
        "bob@kumin.xn--p1ai",
        "a" * 300 + "@kumin.com",
    ),
    "ip_address": (
        "93.184.216.34",
        "8.34.210.7",
        "120.1.2.30",
        "2606:4700:4700::1111",
        "2a00:1450:4001:0831:0000:0000:0000:200e",
        "2620:FE:1::FE",
    ),
    "phone": (
        "+49 30 1234567",
        "+1 (555) 234-5678",
        "+1-555-234-5678",
        "+33 1 23 45 67 89",
        "+44 (0)20 7946 0958",
        "+31641044153",
        "+49.30.1234567",
        "+49 30/1234567",
    ),
    "credit_card": (
        "4111111111111111",
        "4111 1111 1111 1111",
        "5555-5555-5555-4444",
        "378282246310005",
        "3782 822463 10005",
        "6011111111111117",
        "30569309025904",
        "2223003122003222",
        "3566002020360505",
        "6200000000000005",
    ),
    "iban": (
        "DE89370400440532013000",
        "DE89 3704 0044 0532 0130 00",
        "GB82 WEST 1234 5698 7654 32",
        "BE68 5390 0754 7034",
        "NO9386011117947",
    ),
    "secret": (
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_" + "a1B2" * 9,
        "github_pat_" + "a" * 82,
        "xoxb-" + "12345678-" * 3,
        "sk-ant-" + "api03-" * 8,
        PEM,
        PEM.replace("RSA ", ""),
    ),
}
LEFT = (
    # emails: images, remotes, names kept for documentation, operators, no name, no domain
    "icon@2x.png git@github.com a@example.com b@mail.example.org c@host.example d@router.local A@B.T @user pkg@4.17.21",
    "@kumin.com and .@kumin.com and me @ kumin.com and x@localhost",
    # addresses: private, loopback, link-local, documentation, multicast, no address
    "10.1.20.30 192.168.10.20 172.16.40.50 127.0.0.1 169.254.10.20 192.0.2.10 198.51.100.20 203.0.113.30 224.0.0.251 0.0.0.0",
    "fe80::1 ::1 2001:db8::1 fd00:12:34::1 dead::beef x[2000::5] 2001:4860:4860 2001:4860:: 256.300.10.20 093.184.216.034",
    # numbers that count something
    "1.2.3.4 8.8.8.8 8.2.4.44 pkg==12.34.56.78 pkg>=12.34.56.78 Chrome/114.10.20.30 version 12.34.56.78 v12.34.56.78",
    'Section 4.10.22.7 1.3.6.1.4.1.311 12.34.56.78.90 ObjectIdentifier("2.5.29.24") Version: "12.34.56.78" 12.34.56.78a',
    # phones: no `+`, too short, too long, decimals, sums, exponents
    "030 1234567 555-234-5678 +1234567 +12345678901234567 +1.50 22.30 44.50 66 x+4930123456 1e+10000000 f(a)+100000000",
    # cards: a wrong last digit, a wrong length, no issuer, in a word or a decimal number
    "4111111111111112 411111111111111 1111111111111117 x4111111111111111 0.4111111111111111 4111111111111111.5",
    # accounts: wrong check digits, a wrong length, no country, in a word
    "DE88370400440532013000 DE8937040044053201300 XX89370400440532013000 aDE89370400440532013000 DE89370400440532013000a",
    # keys: too short, in a word, marks without a key, a public key
    "AKIAIOSFODNN7EXAMPL AKIAIOSFODNN7EXAMPLEX ghp_abc task-ant-x sk-ant-short",
    'BEGIN = "-----BEGIN RSA PRIVATE KEY-----"; END = "-----END RSA PRIVATE KEY-----"',
    PEM.replace("PRIVATE", "PUBLIC"),
    "",
    "<EMAIL> and <IP_ADDRESS>",
)
LINES = Records("jsonl")
BASE = Source(
    name="s",
    loader=RepositoryFiles(("x",), "0"),
    format=LINES,
    domain="prose",
    licence="CC0-1.0",
    terms="free",
    mixture_weight=1.0,
)


@pytest.mark.parametrize(("kind", "match"), [(kind, match) for kind, matches in FOUND.items() for match in matches])
def test_every_form_is_found_by_its_kind_alone(kind: RedactedKind, match: str) -> None:
    around = ("{}", "at {} now", "({}), then", "是{}。", "<td>{}</td>", "it is {}.\nNext", "'{}': {}")
    others = redactor(Redaction(tuple(other for other in KINDS if other != kind)))
    for form in around:
        text = form.replace("{}", match)
        expected = form.replace("{}", placeholder(kind))
        count = form.count("{}")
        assert redactor(Redaction((kind,)))(text) == (expected, {kind: count})
        assert ALL(text) == (expected, {kind: count})
        assert others(text) == (text, {})


@pytest.mark.parametrize("text", LEFT)
def test_what_only_looks_like_it_stays(text: str) -> None:
    assert ALL(text) == (text, {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("call +1 555 234 5678 2023 to", "call <PHONE> 2023 to"),
        ("BE68 5390 0754 7034 USED", "<IBAN> USED"),
        ("4111 1111 1111 1111 2222", "<CREDIT_CARD> 2222"),
        ("1234 4111 1111 1111 1111", "1234 <CREDIT_CARD>"),
        ("https://bob:secret@kumin.com/x", "https://bob:<EMAIL>/x"),
        ("93.184.216.34:80, 93.184.216.0/24-93.184.217.1", "<IP_ADDRESS>:80, <IP_ADDRESS>/24-<IP_ADDRESS>"),
        ("[2606:4700:4700::1111]:443 2606:4700:4700::1111: down", "[<IP_ADDRESS>]:443 <IP_ADDRESS>: down"),
        ("::ffff:93.184.216.34", "::ffff:<IP_ADDRESS>"),
        ("a@kumin.com,b@kumin.com;c@kumin.com", "<EMAIL>,<EMAIL>;<EMAIL>"),
        (f"{PEM}{PEM}", "<SECRET><SECRET>"),
        (f"-----BEGIN RSA PRIVATE KEY-----\n{PEM}", "-----BEGIN RSA PRIVATE KEY-----\n<SECRET>"),
    ],
)
def test_where_a_match_ends(text: str, expected: str) -> None:
    assert ALL(text)[0] == expected


PIECES = [
    *(match for matches in FOUND.values() for match in matches if len(match) < 60),
    *"@.:-+/ _<>\n",
    "==",
    "version ",
    "v",
]
PIECES += ["x", "7", "a.b", "é", "是", "@2x.png", "1.2.3.4", "2001:", "::", "-----", "AKIA", "DE89", "<EMAIL>"]
HOSTILE = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=12).map("".join)


@given(HOSTILE, st.lists(st.sampled_from(KINDS), min_size=1, unique=True))
def test_counts_are_placeholders_and_a_second_time_changes_nothing(text: str, kinds: list[RedactedKind]) -> None:
    redact = redactor(Redaction(tuple(kinds)))
    redacted, counts = redact(text)
    added = {kind: redacted.count(placeholder(kind)) - text.count(placeholder(kind)) for kind in KINDS}
    assert counts == {kind: count for kind, count in added.items() if count}
    assert redact(redacted) == (redacted, {})
    assert redactor(Redaction(tuple(reversed(kinds))))(text) == (redacted, counts), "the order of kinds changes nothing"


@given(st.text() | st.text("abc .,\n-:/<>ABC"))
def test_a_text_without_digits_and_at_signs_stays_as_it_is(text: str) -> None:
    bare = re.sub("[0-9@]", "", text)
    assert ALL(bare) == (bare, {})


@given(HOSTILE, HOSTILE)
def test_what_stands_beside_a_match_stays(before: str, behind: str) -> None:
    text = f"{before} \n {behind}"
    redacted, counts = ALL(text)
    for mark in map(placeholder, counts):
        redacted = redacted.replace(mark, "\0")
    pieces = [piece for piece in redacted.split("\0") if piece]
    at = 0
    for piece in pieces:  # What is left is a part of the text, in its order.
        at = text.find(piece, at)
        assert at >= 0
        at += len(piece)


BEGINNINGS = ["a", "a.", "@", "a@", "@a.", "1", "1.", "1.2.3.", "2001:", "a:", "+", "+1", "+1 ", "4 ", "A", "DE89"]
BEGINNINGS += ["-", "-----BEGIN ", "-----BEGIN PRIVATE KEY-----", "ghp_", "sk-ant-+", "AKIA", "'", "é", "a-"]


@pytest.mark.parametrize(
    "unit", [*BEGINNINGS, *(pytest.param(unit, marks=pytest.mark.slow) for unit in ("4111 ", "DE89 3704 "))]
)
def test_a_megabyte_of_beginnings_ends(unit: str) -> None:
    """Each pattern is bounded, or stops where the next match could begin; a pattern that tries all pairs never ends here."""
    text = unit * (10**6 // len(unit)) + "\n@kumin.com +"
    assert ALL(text) == (text, {})


def normalized(root: Path, steps: tuple[DatatroveStep | Redaction, ...], files: dict[str, str], workers: int = 1) -> Artifact:
    raw = Node(("raw",), "s", FILES, Files(files))
    store, execution = Store(str(root)), Execution(workers)
    build(store, raw, execution=execution)
    node = Node(("normalized",), "s", NORMALIZE, NormalizeConfig("s", "text", "prose", steps=steps), {"raw": raw})
    return build(store, node, execution=execution).artifact


def test_documents_and_counts_of_a_source(tmp_path: Path) -> None:
    files = {
        "a": "Write to bob@kumin.com or ann@kumin.com.",
        "b": "Write to eve@kumin.org or joe@kumin.com.",
        "c": "From 93.184.216.34, version 1.2.3.4",
        "d": "clean",
    }
    artifact = normalized(tmp_path, (Redaction(),), files)
    texts = ["From <IP_ADDRESS>, version 1.2.3.4", "Write to <EMAIL> or <EMAIL>.", "clean"]
    documents = read_documents(artifact).sort("text")
    assert documents["text"].to_list() == texts
    assert documents["id"].to_list() == [text_digest(text) for text in texts]
    assert artifact.manifest.statistics["redacted"] == {"email": 4, "ip_address": 1}
    assert artifact.manifest.statistics["drops"] == {"exact_duplicate": 1}, "equal after redaction is equal"
    again = normalized(tmp_path / "again", (Redaction(),), files, workers=2)
    assert again.data_version == artifact.data_version
    assert again.manifest.statistics["redacted"] == artifact.manifest.statistics["redacted"]


def test_a_source_that_was_searched_says_that_nothing_was_found(tmp_path: Path) -> None:
    clean = normalized(tmp_path, (Redaction(("phone", "iban")),), {"a": "clean"})
    assert clean.manifest.statistics["redacted"] == {"iban": 0, "phone": 0}
    assert "redacted" not in normalized(tmp_path, (), {"a": "clean"}).manifest.statistics


def test_identities_without_a_redaction_stay_and_redactions_survive_a_job() -> None:
    bare = NormalizeConfig("s", LINES, "prose")
    assert "steps" not in to_jsonable(bare) and "steps" not in to_jsonable(BASE)
    block = DatatroveStep("datatrove.pipeline.filters:RegexFilter", "0.10.1", {"regex_exp": "x"})
    config = replace(bare, steps=(Redaction(), block, Redaction(("secret", "iban"))))
    assert to_jsonable(replace(bare, steps=(block,)))["steps"] == [
        {"block": block.block, "version": "0.10.1", "arguments": {"regex_exp": "x"}, "beside": {}}
    ]
    assert from_jsonable(NormalizeConfig, json.loads(json.dumps(to_jsonable(config)))) == config
    changed = replace(BASE, steps=(Redaction(),))
    assert from_jsonable(Source, json.loads(json.dumps(to_jsonable(changed)))) == changed
    assert to_jsonable(replace(config, steps=(Redaction(patterns_version="0"),))) != to_jsonable(config)


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        (("email", "name"), "kinds has 'name'; allowed: email, ip_address, phone, credit_card, iban, secret"),
        (("email", "email"), r"kinds is \('email', 'email'\); name at least one of .* each once"),
        ((), r"kinds is \(\); name at least one"),
    ],
)
def test_unknown_and_repeated_kinds_are_refused(kinds: tuple[RedactedKind, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Redaction(kinds)


def test_another_version_of_the_patterns_is_refused_before_the_first_record() -> None:
    with pytest.raises(ValueError, match="patterns_version is '0'; this code has '1'"):
        prepared([Redaction(patterns_version="0")])


@pytest.mark.parametrize("form", ["messages", "preferences"])
def test_conversations_and_pairs_are_refused(form: str) -> None:
    format = Records("jsonl", text="m", form=form, rejected="r" if form == "preferences" else None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="source s: step redaction of email, ip_address changes a text"):
        replace(BASE, format=format, domain="chat", steps=(Redaction(),))


@pytest.mark.parametrize("field", ["conversation", "preference"])
def test_a_redaction_that_would_change_a_conversation_stops(field: str) -> None:
    steps = prepared([Redaction()])
    clean = Record("r", "user: hello", {field: "{}"})
    assert list(after(steps, [clean])) == [clean]
    with pytest.raises(ValueError, match="step redaction of email, ip_address takes text out of record r, a conversation"):
        list(after(steps, [Record("r", "user: I am bob@kumin.com", {field: "{}"})]))


def test_placeholders_are_counted_over_records() -> None:
    counts = Counter[str]()
    steps = prepared([Redaction(("email",)), Redaction(("ip_address",))], counts)
    records = [Record("a", "bob@kumin.com at 93.184.216.34", {"author": "bob@kumin.com"}), Record("b", None), Record("c", "x")]
    left = list(after(steps, records))
    assert left == [replace(records[0], text="<EMAIL> at <IP_ADDRESS>"), *records[1:]]
    assert counts == {"email": 1, "ip_address": 1}


def test_a_card_shows_how_much_was_replaced() -> None:
    (note,) = redacted_note({"redacted": {"email": 1_234, "ip_address": 0}})
    assert note == Note("Replaced by placeholders in all records that were read: 1,234 email, 0 ip_address.")
    assert list(redacted_note({})) == []


def test_a_redaction_needs_no_datatrove() -> None:
    code = "import sys; from datakit.readers.steps import prepared; from datakit.sources.redaction import Redaction; "
    code += "prepared([Redaction()]); sys.exit('datatrove' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
