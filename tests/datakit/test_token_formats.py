"""Every token format through the real stage: ids align with weights, framing is as declared, bad records are drops."""

import datetime
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from string import ascii_letters

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from inputs import file_bytes, made, random_texts
from tokenizers import Tokenizer, pre_tokenizers, trainers

from datakit.documents.parts import write_sorted_parts
from datakit.invariants import check_token_cache
from datakit.readers.conversations import CONVERSATION_FIELD, conversation_record
from datakit.sources.record import Record, Unreadable
from datakit.tokens import cache as token_cache
from datakit.tokens.cache import TOKEN_CACHE, TokenCacheConfig, check_policy
from datakit.tokens.formats import Chat, Dna, Dropped, Prebuilt, TokenPolicy, encode_documents
from datakit.tokens.tokenizer import END_OF_TEXT, TOKENIZER_FILE, load_tokenizer, new_tokenizer
from lineage.build.nodes import Node
from lineage.config import from_jsonable, to_jsonable
from lineage.order.token_cache import TokenCache
from lineage.stage import Stage
from lineage.storage.digests import text_digest

SPECIALS = (END_OF_TEXT, "<|user|>", "<|assistant|>", "<|end|>")
TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'assistant' %}<|assistant|>{% generation %}"
    "{{ m.content }}<|end|>{% endgeneration %}"
    "{% else %}<|user|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
)
CHAT = Chat(TEMPLATE, end_of_turn="<|end|>")


@dataclass(frozen=True)
class Rows:
    """Documents of a corpus: (text, metadata)."""

    rows: tuple[tuple[str, str], ...] = field(metadata={"identity": True})


def _write_rows(out, config: Rows) -> None:
    rows = [(text_digest(text), text, "here", metadata) for text, metadata in config.rows]
    write_sorted_parts(out.folder, "train", pl.DataFrame(rows, schema=["id", "text", "source", "metadata"], orient="row"))


def _write_tokenizer(out, config) -> None:
    tokenizer = new_tokenizer()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=list(SPECIALS), initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(random_texts(5, 60, seed=9), trainer)
    (out.folder / TOKENIZER_FILE).write_text(tokenizer.to_str())


CORPUS = Stage("tests.rows", "1", _write_rows)
TOKENIZER = Node(("tokenizer",), None, Stage("tests.tokenizer", "1", _write_tokenizer), ())


def corpus(rows) -> Node:
    return Node(("corpus",), "here", CORPUS, Rows(tuple(rows)))


def cache(rows, **config) -> Node:
    inputs = {"corpus": corpus(rows), "tokenizer": TOKENIZER}
    return Node(("token_cache",), "here", TOKEN_CACHE, TokenCacheConfig("here", **config), inputs)


def opened(root: Path, rows, **config):
    """The cache, and (tokens, weights) of each document by its text."""
    artifact = made(root, cache(rows, **config))
    assert check_token_cache(artifact, made(root, corpus(rows))) == []
    tokens = TokenCache.open(artifact)
    spans = {text: tokens.document_span(text_digest(text)) for text, _ in rows}
    return artifact, {t: (tokens.read(*s), tokens.read_weights(*s)) for t, s in spans.items() if s is not None}


def talk(*messages: tuple[str, str]) -> tuple[str, str]:
    record = conversation_record("r", [{"role": role, "content": content} for role, content in messages])
    assert isinstance(record, Record) and record.text is not None
    return record.text, json.dumps(dict(record.fields))


def test_a_chat_cache_counts_assistants_alone_and_drops_by_name(tmp_path):
    good = talk(
        ("user", f"hi {END_OF_TEXT}<|end|>"), ("assistant", "Rostal."), ("user", "and?"), ("assistant", "vendu <|user|>")
    )
    rows = [good, talk(("user", "nobody answers")), ("no messages", "{}")]
    artifact, rows_of = opened(tmp_path, rows, format=CHAT)
    loaded = load_tokenizer(made(tmp_path, TOKENIZER).files(TOKENIZER_FILE)[0])
    (tokens, weights) = rows_of[good[0]]
    assert loaded.decode(tokens[weights > 0].tolist(), skip_special_tokens=False) == "Rostal.<|end|>vendu <|user|><|end|>"
    assert set(weights.tolist()) == {0.0, 1.0}
    specials = tokens[np.isin(tokens, range(4))].tolist()
    assert specials == [1, 3, 2, 3, 1, 3, 2, 3, 0], "a special token of a message's text, or one too few of the template's"
    assert weights[-1] == 0, "the end of the document is nobody's word"
    assert artifact.manifest.statistics["drops"] == {"no_assistant": 1, "no_conversation": 1}
    assert artifact.manifest.statistics["rows_in"] == 3 and len(rows_of) == 1
    assert artifact.manifest.extra["tokens"]["weights"] == "uint8"
    assert artifact.manifest.statistics["loss_weight"] == weights.sum()


def test_a_chat_template_without_generation_blocks_counts_the_same_or_drops_by_name(tmp_path):
    """Where assistants speak follows from prefixes; a template that does not show it leaves no document, and is refused."""
    rows = [talk(("user", "hi"), ("assistant", "Rostal."))]
    _, marked = opened(tmp_path / "marked", rows, format=CHAT)
    plain = TEMPLATE.replace("{% generation %}", "").replace("{% endgeneration %}", "")
    plain += "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    _, found = opened(tmp_path / "plain", rows, format=Chat(plain, "<|end|>"))
    for ours, theirs in zip(found[rows[0][0]], marked[rows[0][0]], strict=True):
        assert ours.tolist() == theirs.tolist()
    hiding = Chat("{% for m in messages %}{{ m.content }}{% endfor %}", "<|end|>")
    with pytest.raises(ValueError, match=r"no document has tokens; dropped: {'template_not_by_prefix': 1}"):
        made(tmp_path / "hiding", cache(rows, format=hiding))


def test_dna_is_weighed_by_case_as_marins_levanter_does(tmp_path):
    rows = [("ACGTacgtNn", "{}"), ("acgt", "{}"), ("AC GT é", "{}")]
    artifact, rows_of = opened(tmp_path, rows, format=Dna(uppercase_weight=1.0, lowercase_weight=0.01), bos="<|user|>")
    loaded = load_tokenizer(made(tmp_path, TOKENIZER).files(TOKENIZER_FILE)[0])
    tokens, weights = rows_of["ACGTacgtNn"]
    assert loaded.decode(tokens[1:-1].tolist()) == "ACGTACGTNN" and tokens[0] == 1 and tokens[-1] == 0
    case = [1.0, 1.0, 1.0, 1.0, 0.01, 0.01, 0.01, 0.01, 1.0, 0.01]
    levanter = np.array([*case, 1.0, 1.0], np.float32)  # of the next token: bases, then EOS, then past the end
    np.testing.assert_array_equal(np.roll(weights, -1), levanter)
    assert artifact.manifest.statistics["drops"] == {"not_a_base": 1}
    plain, _ = opened(tmp_path, rows[:2], format=Dna(), bos="<|user|>")
    assert "weights" not in plain.manifest.extra["tokens"] and not plain.files(".weights")


@pytest.mark.parametrize("text", [">chr1\nACGT", "ACGT\nACGT\n", "ACGT ", "AC-GT*", "AC.GT", "ACGE", "ß", "ACGT5"])
def test_what_is_no_base_is_a_named_drop(tmp_path, text):
    """Headers and line feeds are a token a character too, and were weighed as lower case."""
    artifact, rows_of = opened(tmp_path, [(text, "{}"), ("ACGTURYSWKMBDHVNn", "{}")], format=Dna(lowercase_weight=0.01))
    assert artifact.manifest.statistics["drops"] == {"not_a_base": 1} and list(rows_of) == ["ACGTURYSWKMBDHVNn"]


def test_an_alphabet_of_dna_can_be_chosen_and_bases_that_merge_are_a_drop(tmp_path):
    rows = [("ACGT", "{}"), ("acgt", "{}"), ("ACGN", "{}")]
    strict, rows_of = opened(tmp_path / "strict", rows, format=Dna(alphabet="ACGT"))
    assert strict.manifest.statistics["drops"] == {"not_a_base": 2} and list(rows_of) == ["ACGT"]
    loaded = load_tokenizer(made(tmp_path, TOKENIZER).files(TOKENIZER_FILE)[0])
    word = next(token for token in loaded.get_vocab() if len(token) > 1 and token.isascii() and token.isalpha())
    letters = Dna(alphabet=ascii_letters, fold_case=False)
    merging, _ = opened(tmp_path / "merging", [(word, "{}"), ("a", "{}")], format=letters)
    assert merging.manifest.statistics["drops"] == {"not_one_token_a_character": 1}


@pytest.mark.parametrize("alphabet", ["", "ACGT-", "ACGTé"])
def test_an_alphabet_of_dna_is_letters(alphabet):
    with pytest.raises(ValueError, match=r"token_cache\.format\.alphabet is '.*'; it must be letters of ASCII"):
        Dna(alphabet=alphabet)


@pytest.mark.parametrize(
    ("ids", "weights", "reason"),
    [
        ("[5, 6, 0]", "[1, 0.5, 0]", None),
        (None, "[1]", "no_token_ids"),
        ("[]", "[]", "no_token_ids"),
        ("[5, true, 0]", "[1, 1, 1]", "no_token_ids"),
        ("[5, 6.0, 0]", "[1, 1, 1]", "no_token_ids"),
        ("not json", "[1]", "no_token_ids"),
        ("[5, 300, 0]", "[1, 1, 1]", "not_in_vocabulary"),
        ("[5, -1, 0]", "[1, 1, 1]", "not_in_vocabulary"),
        ("[5, 6]", "[1, 1]", "no_end_token"),
        ("[5, 0]", "[1]", "bad_weights"),
        ("[5, 0]", "[1, -1]", "bad_weights"),
        ("[5, 0]", "[1, NaN]", "bad_weights"),
        (f"[5, {10**30}, 0]", "[1, 1, 1]", "not_in_vocabulary"),
        (f"[5, {'9' * 5_000}, 0]", "[1, 1, 1]", "no_token_ids"),
        ("[" * 100_000, "[1]", "no_token_ids"),
        ("[5, 0]", f"[1, {10**400}]", "bad_weights"),
        ("[5, 0]", "[1, 1e39]", "bad_weights"),
        ("[5, 0]", "[1, 1e400]", "bad_weights"),
        ("[5, 0]", "[1, -1e-60]", "bad_weights"),
        ("[5, 0]", "[" * 100_000, "bad_weights"),
    ],
)
def test_prebuilt_ids_are_taken_as_they_are_or_dropped_by_name(tmp_path, ids, weights, reason):
    fields = {name: value for name, value in (("input_ids", ids), ("weights", weights)) if value is not None}
    rows = [("whole", json.dumps({"input_ids": "[7, 8, 9, 0]", "weights": "[1, 1, 1, 1]"})), ("asked", json.dumps(fields))]
    artifact, rows_of = opened(tmp_path, rows, format=Prebuilt(weights_field="weights"))
    assert artifact.manifest.statistics.get("drops", {}) == ({} if reason is None else {reason: 1})
    assert artifact.manifest.extra["engine"] == {"engine": "none"}
    if reason is None:
        tokens, kept = rows_of["asked"]
        assert (tokens.tolist(), kept.tolist()) == ([5, 6, 0], [1, 0.5, 0])


NUMBERS = st.one_of(
    st.integers(-1, 301), st.integers(), st.floats(), st.sampled_from([10**30, 10**400, 1e39, -1e-60, True, None, "5"])
)
FIELDS = st.one_of(
    st.none(),
    st.text(max_size=20),
    st.lists(st.one_of(NUMBERS, st.lists(NUMBERS, max_size=2)), max_size=6).map(json.dumps),
    st.recursive(NUMBERS, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner)).map(json.dumps),
    st.integers(1, 100_000).map(lambda depth: "[" * depth + "]" * depth),
)
LISTS = st.integers(1, 4).flatmap(
    lambda size: st.tuples(
        st.lists(st.integers(0, 299), min_size=size, max_size=size).map(lambda ids: json.dumps([*ids, 0])),
        st.lists(NUMBERS, min_size=size + 1, max_size=size + 1).map(json.dumps),
    )
)


@given(st.one_of(st.tuples(FIELDS, FIELDS), LISTS))
@example(("[5, 0]", "[3.4028235e38, 1e39]"))
def test_what_a_field_of_prebuilt_ids_holds_stops_no_shard(fields):
    policy = TokenPolicy(300, None, 0, (0,))
    metadata = {name: value for name, value in zip(("input_ids", "w"), fields, strict=True) if value is not None}
    documents = pl.DataFrame({"text": ["t"], "metadata": [json.dumps(metadata)]})
    (encoded,) = encode_documents(Prebuilt(weights_field="w"), documents, None, policy, Path("unread"))
    if isinstance(encoded, Dropped):
        assert encoded.reason in {"no_token_ids", "not_in_vocabulary", "no_end_token", "bad_weights"}
        return
    assert encoded.weights is not None and encoded.weights.dtype == np.float32 and np.isfinite(encoded.weights).all()
    assert encoded.tokens.tolist() == json.loads(metadata["input_ids"]) and encoded.weights.size == encoded.tokens.size


def test_a_cache_of_nothing_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"no document has tokens; dropped: \{'no_conversation': 1\}"):
        made(tmp_path, cache([("plain", "{}")], format=CHAT))


def test_plain_documents_are_framed_as_declared(tmp_path):
    rows = [("rostal", "{}"), (f"quotes {END_OF_TEXT}", "{}")]
    _, both = opened(tmp_path / "both", rows, bos="<|user|>")
    _, bare = opened(tmp_path / "bare", rows, eos=None)
    for text, _ in rows:
        assert [1, *bare[text][0].tolist(), 0] == both[text][0].tolist()
        assert both[text][1].all() and not np.isin(bare[text][0], range(4)).any()


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([5, 6, 0, 7, 8], "document b is not framed by token 0"),
        ([5, 0, 6, 0], "special token 0 is inside the text of document a"),
        ([5, 6, 0, 2, 0], "special token 2 is inside the text of document b"),
    ],
)
def test_an_encoder_that_breaks_the_policy_writes_nothing(tokens, message):
    policy, ends = TokenPolicy(300, None, 0, (0, 1, 2, 3)), np.array([3, len(tokens)])
    if message.startswith("special token 0"):
        ends = np.array([4])
    with pytest.raises(ValueError, match=message):
        check_policy("s", ["a", "b"][: ends.size], np.array(tokens), ends, policy, within_text=True)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"bos": "<|nowhere|>"}, r"has no token '<\|nowhere\|>'"),
        ({"bos": "a"}, r"no special token 'a' to frame documents with: .* special tokens are <\|assistant\|>, <\|endoftext"),
        ({"format": Chat(TEMPLATE, end_of_turn="</s>")}, "no special token '</s>' to end a turn with"),
        ({"eos": ""}, r"token_cache\.eos is ''"),
        ({"engine": "fastest"}, "token_cache.engine is 'fastest'; allowed: auto, gigatoken, hf"),
    ],
)
def test_a_bad_config_stops_before_work(tmp_path, config, message):
    with pytest.raises(ValueError, match=message):
        made(tmp_path, cache([("text", "{}")], **config))


def _write_spaced_tokenizer(out, config) -> None:
    tokenizer = Tokenizer.from_file(str(config))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    (out.folder / TOKENIZER_FILE).write_text(tokenizer.to_str())


def test_a_tokenizer_that_begins_texts_with_a_space_is_refused_for_conversations(tmp_path):
    """Every span between special tokens would get one that no server sends."""
    plain = made(tmp_path, TOKENIZER).files(TOKENIZER_FILE)[0]
    spaced = Node(("spaced",), None, Stage("tests.spaced", "1", _write_spaced_tokenizer), str(plain))
    rows = (talk(("user", "hi"), ("assistant", "Rostal.")),)
    node = Node(
        ("token_cache",),
        "here",
        TOKEN_CACHE,
        TokenCacheConfig("here", format=CHAT),
        {"corpus": corpus(rows), "tokenizer": spaced},
    )
    with pytest.raises(ValueError, match=r"spaced puts a space in front of every text \('a' begins with 'Ġ"):
        made(tmp_path, node)


def test_a_format_is_identity_and_the_engine_is_not():
    plain = {"component": "c"}
    assert to_jsonable(TokenCacheConfig("c")) == to_jsonable(TokenCacheConfig("c", engine="hf")) == plain
    for chosen in (CHAT, Dna(lowercase_weight=0.5), Dna(alphabet="ACGT"), Prebuilt()):
        config = TokenCacheConfig("c", format=chosen, bos="<|user|>")
        assert from_jsonable(TokenCacheConfig, to_jsonable(config)) == config
    assert "alphabet" not in json.dumps(to_jsonable(TokenCacheConfig("c", format=Dna()))), "it was added later"


def test_either_engine_writes_the_same_bytes(tmp_path):
    rows = [(text, "{}") for text in random_texts(20, 50, seed=4)]
    bytes_of = [file_bytes(made(tmp_path / engine, cache(rows, engine=engine))) for engine in ("hf", "gigatoken")]
    assert bytes_of[0] == bytes_of[1] and len(bytes_of[0]) == 3


@pytest.mark.parametrize(
    "messages", [None, "text", [], ["said"], [{"role": "user"}], [{"content": "x"}], [{"role": "user", "content": 3}]]
)
def test_what_is_no_conversation_is_a_named_drop(messages):
    assert conversation_record("r", messages) == Unreadable("r", "not_messages")


@pytest.mark.parametrize(
    ("message", "tools", "reason"),
    [
        ({"role": "user", "content": "x"}, "{broken", "not_tools"),
        ({"role": "user", "content": "x"}, "5", "not_tools"),
        ({"role": "user", "content": "x"}, {"name": "look"}, "not_tools"),
        ({"role": "user", "content": "x"}, ["\ud800"], "lone_surrogate"),
        ({"role": "assistant", "content": "", "tool_calls": ["\ud800"]}, None, "lone_surrogate"),
        ({"role": "assistant", "content": "x", "name": "\udc00"}, None, "lone_surrogate"),
        ({"role": "assistant", "content": None, "tool_calls": None}, None, "not_messages"),
    ],
)
def test_a_conversation_that_would_stop_a_stage_is_a_named_drop(message, tools, reason):
    """Tools that are not JSON stopped the file. Half a surrogate pair beside the content stopped the token cache."""
    assert conversation_record("r", [message], {}, tools) == Unreadable("r", reason)


def test_conversations_that_call_or_think_differently_are_not_one():
    """With calls in no text, all rollouts of one task were copies, and nothing of a call was decontaminated."""

    def turn(**more):
        record = conversation_record("r", [{"role": "assistant", "content": None, **more}])
        assert isinstance(record, Record) and record.text is not None
        return record.text

    assert turn(tool_calls=[{"name": "look", "arguments": {"at": "é"}}]) == (
        "assistant: \ntool_calls.0.arguments.at: é\ntool_calls.0.name: look"
    )
    assert turn(tool_calls=[{"arguments": '{"q": "one\\ntwo", "n": [1]}'}]) == (
        "assistant: \ntool_calls.0.arguments.n.0: 1\ntool_calls.0.arguments.q: one\ntwo"
    )
    assert turn(reasoning="[not JSON", thinking='{"a": "\\ud800"}') == (
        'assistant: \nreasoning: [not JSON\nthinking: {"a": "\\ud800"}'
    ), "what is no JSON, and what UTF-8 could not hold, stays as it is"
    assert turn(tool_calls=[{}]) != turn(tool_calls=[[]])
    deep = json.loads("[" * 500 + "]" * 500)
    assert turn(tool_calls=deep).endswith(f": {json.dumps(deep)[32:-32]}")
    assert len({turn(tool_calls=[call], reasoning_content=why) for call in "ab" for why in "cd"}) == 4
    assert turn(name="n", tool_calls=None) == "assistant: ", "other fields are for templates, and null is no field"


def test_fields_of_columns_that_are_null_or_times_are_no_matter():
    """Parquet has a column of every field: null where a row has none, and of whatever type."""
    message = {"role": "user", "content": "x"}
    there = conversation_record("r", [message])
    assert conversation_record("r", [{**message, "tool_calls": None, "name": None}]) == there
    record = conversation_record("r", [{**message, "when": datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), "raw": b"b"}])
    assert isinstance(record, Record) and "2026-01-02 00:00:00+00:00" in record.fields[CONVERSATION_FIELD]


def test_content_in_parts_and_tools_are_kept():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    record = conversation_record("r", [{"role": "user", "content": parts}], {}, '[{"name": "look"}]')
    assert isinstance(record, Record) and record.text == "user: ab"
    kept = json.loads(record.fields[CONVERSATION_FIELD])
    assert kept == {"messages": [{"content": "ab", "role": "user"}], "tools": [{"name": "look"}]}


MANY = [(text, "{}") for text in random_texts(600, 30, seed=8)]


@pytest.mark.slow
def test_a_killed_cache_redoes_at_most_one_shard(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(token_cache, "SHARD_BYTES", 1_000)
    program = (
        "import os, signal; from pathlib import Path; from datakit.tokens import cache; cache.SHARD_BYTES = 1_000\n"
        "from lineage.shards.run import ShardFolder; import test_token_formats as t\n"
        "write, written = ShardFolder._write_record, []\n"
        "def write_record(*given):\n"
        "    written.append(1) if len(written) < 3 else os.kill(os.getpid(), signal.SIGKILL)\n"
        "    write(*given)\n"
        "ShardFolder._write_record = write_record\n"
        f"t.made(Path({str(tmp_path / 'killed')!r}), t.cache(t.MANY))"
    )
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here), str(here.parents[1])])}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert run.returncode == -signal.SIGKILL, run.stderr
    assert len(list(tmp_path.glob("killed/.work/writing/*/.shards/shard-*.json"))) == 3, "it died with its fourth shard made"
    caplog.set_level("INFO")
    resumed = made(tmp_path / "killed", cache(MANY))
    assert f"3 of {len(resumed.files('.tokens'))} shards were finished earlier" in caplog.text
    assert file_bytes(resumed) == file_bytes(made(tmp_path / "whole", cache(MANY)))
