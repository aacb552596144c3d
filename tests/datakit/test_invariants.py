"""Invariant checks pass on what stages write, and name any later change of the files."""

import shutil
from dataclasses import replace

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inputs import Marked, Texts, corpus, documents, made, marks, minhash, quality, random_texts

from datakit.corpus.build import CorpusConfig
from datakit.invariants import (
    check_attributes,
    check_corpus,
    check_documents,
    check_file_set,
    check_rows_conserved,
    check_token_cache,
)
from datakit.tokens.cache import TOKEN_CACHE, TokenCacheConfig
from datakit.tokens.tokenizer import TOKENIZER, TokenizerConfig
from lineage.build.nodes import Node
from lineage.stage import Stage
from lineage.writing.write import writing

TEXTS = random_texts(30, 60, seed=71)
SOURCE = Texts("here", (*TEXTS, TEXTS[0], "short lead"), part_bytes=5_000)
CORPUS_NODE = corpus(SOURCE, how=CorpusConfig(heldout_frac=0.5), marked=Marked((TEXTS[3],)))
TOKENIZER_NODE = Node(("tokenizer", "small"), None, TOKENIZER, TokenizerConfig(vocab_size=300), {"corpora": (CORPUS_NODE,)})
CACHE_NODE = Node(
    ("token_cache", "small"),
    "here",
    TOKEN_CACHE,
    TokenCacheConfig("here"),
    {"corpus": CORPUS_NODE, "tokenizer": TOKENIZER_NODE},
)


def part(artifact, under="documents/", index=0):
    return artifact.files(".parquet", under=under)[index]


def rewrite(path, change):
    """Replace a part by what `change` makes of it; columns that are still there keep their types."""
    before = pq.read_schema(path)
    table = change(pl.read_parquet(path)).to_arrow()
    types = [before.field(f.name) if f.name in before.names else f for f in table.schema]
    pq.write_table(table.cast(pa.schema(types)), path)


def put_text(path, text):
    path.write_bytes(text.encode())


def test_what_the_stages_write_passes_every_check(tmp_path):
    source, made_corpus, cache = (made(tmp_path, node) for node in (documents(SOURCE), CORPUS_NODE, CACHE_NODE))
    assert len(source.files(".parquet")) > 1
    violations = check_documents(source) + check_corpus(made_corpus) + check_token_cache(cache, made_corpus)
    for node in (minhash(SOURCE), quality(SOURCE), marks(SOURCE)):
        violations += check_attributes(made(tmp_path, node), source)
    for artifact in (source, made_corpus, cache, made(tmp_path, TOKENIZER_NODE), made(tmp_path, quality(SOURCE))):
        violations += check_file_set(artifact) + check_rows_conserved(artifact)
    assert violations == []


@pytest.mark.parametrize(
    ("change", "violation"),
    [
        (lambda frame: frame.reverse(), "ids are not sorted and unique"),
        (lambda frame: pl.concat([frame[:1], frame[:1], frame[2:]]), "ids are not sorted and unique"),
        (lambda frame: frame.with_columns(text=pl.col("text") + "!"), "sampled ids are not the digest of their text"),
        (lambda frame: frame[1:], "documents holds 30 rows, its manifest 31, its statistics 31"),
        (lambda frame: frame.rename({"text": "body"}), "has the columns id: string, body: "),
        (lambda frame: frame.with_columns(source=pl.lit(1)).rename({"source": "origin"}), "origin: int32"),
        (lambda frame: frame.with_columns(extra=pl.lit(1)), "metadata: string, extra: int32; documents have"),
        (lambda frame: frame.with_columns(id=pl.when(pl.int_range(pl.len()) > 0).then("id")), "1 ids are null"),
    ],
)
def test_documents_that_changed_are_named(tmp_path, change, violation):
    source = made(tmp_path, documents(SOURCE))
    path = part(source, index=1)
    rewrite(path, change)
    violations = check_documents(source)
    assert any(violation in line for line in violations), violations
    assert violation.startswith("documents holds") or any(path.name in line for line in violations)


def test_ids_must_rise_from_part_to_part(tmp_path):
    source = made(tmp_path, documents(SOURCE))
    first, second = part(source), part(source, index=1)
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    assert any(f"{second.name}: ids are not sorted and unique" in line for line in check_documents(source))


def test_a_missing_part_is_named_by_every_check(tmp_path):
    source, scored, whole = (made(tmp_path, node) for node in (documents(SOURCE), quality(SOURCE), CORPUS_NODE))
    cache = made(tmp_path, CACHE_NODE)
    gone = [part(source), part(scored, "quality/", 1), part(whole, "heldout/"), cache.files(".ends")[0]]
    for path in gone:
        path.unlink()
    assert check_documents(source) == [f"file documents/{gone[0].name} is missing"]
    assert f"file quality/{gone[1].name} is missing" in check_attributes(scored, source)
    assert f"file heldout/{gone[2].name} is missing" in check_corpus(whole)
    assert check_token_cache(cache, whole) == [f"file tokens/{gone[3].name} is missing"]
    assert check_file_set(source) == [f"file documents/{gone[0].name} is missing"]


def test_attributes_in_another_order_are_named(tmp_path):
    source, scored = made(tmp_path, documents(SOURCE)), made(tmp_path, quality(SOURCE))
    path = part(scored, "quality/", 1)
    rewrite(path, lambda frame: frame.reverse())
    assert check_attributes(scored, source) == [f"{path.name}: its ids are not those of the documents, in their order"]


def test_attributes_of_other_files_are_named(tmp_path):
    other = Texts("here", SOURCE.texts, line="other")
    (violation,) = check_attributes(made(tmp_path, quality(SOURCE)), made(tmp_path, documents(other)))
    assert "datakit/quality[here] has the files ['part-00000-of-" in violation


def test_extra_and_resized_files_are_named(tmp_path):
    source = made(tmp_path, documents(SOURCE))
    put_text(source.folder() / "documents" / "notes.txt", "left here")
    path = part(source)
    path.write_bytes(path.read_bytes() + b" ")
    size = path.stat().st_size
    assert check_file_set(source) == [
        "file documents/notes.txt is not in the manifest",
        f"file documents/{path.name} has {size} bytes, the manifest says {size - 1}",
    ]


def _gapped(out, config):
    for index in config:
        put_text(out.folder / f"part-{index:05d}-of-00003.parquet.txt", "text")
        pl.DataFrame({"id": [str(index)]}).write_parquet(out.folder / f"part-{index:05d}-of-00003.parquet")


GAPPED = Stage("tests.gapped", "1", _gapped)


@pytest.mark.parametrize(("parts", "complete"), [((0, 1, 2), True), ((0, 2), False), ((0, 1), False), ((1, 2), False)])
def test_parts_with_a_gap_are_named(tmp_path, parts, complete):
    violations = check_file_set(made(tmp_path, Node(("gapped",), None, GAPPED, parts)))
    assert violations == [] if complete else "complete would be ['part-00000-of-00002.parquet'" in violations[0]


def _counted(out, config):
    out.record(**config)


COUNTED = Stage("tests.counted", "1", _counted)


@pytest.mark.parametrize(
    ("statistics", "violations"),
    [
        ({"rows_in": 10, "rows_out": 7, "drops": {"empty": 2, "duplicate": 1}}, []),
        ({"rows_in": 10, "rows_out": 10}, []),
        ({"rows_in": 10, "rows_out": 7, "drops": {"empty": 2}}, ["10 rows in, 7 out and 2 dropped"]),
        ({"rows_in": 10, "rows_out": 9}, ["10 rows in, 9 out and 0 dropped"]),
        ({"rows_out": 9}, []),
    ],
)
def test_rows_that_vanish_are_named(tmp_path, statistics, violations):
    assert check_rows_conserved(made(tmp_path, Node(("counted",), None, COUNTED, statistics))) == violations


def test_a_document_in_both_splits_is_named(tmp_path):
    whole = made(tmp_path, CORPUS_NODE)
    train = pl.read_parquet(part(whole, "train/"))
    rewrite(part(whole, "heldout/"), lambda frame: pl.concat([frame, train[:2]]).sort("id"))
    violations = check_corpus(whole)
    assert "2 documents are in train and in held-out" in violations
    assert any(line.startswith("heldout holds") for line in violations)


def committed_with(cache, change):
    """Commit the cache as a stage would have that had written `change`d files: content and digests agree."""
    spec = replace(cache.spec, config={**cache.spec.config, "written": "wrongly"})
    with writing(cache.store, spec) as out:
        shutil.copytree(cache.folder(), out.folder, dirs_exist_ok=True)
        change(out.folder)
        manifest = cache.manifest
        out.extra.update({name: value for name, value in manifest.extra.items() if name not in manifest.facts})
        out.facts.update({name: manifest.extra[name] for name in manifest.facts})
        out.record(**manifest.statistics)
    return out.artifact


def test_token_rows_of_other_documents_are_named(tmp_path):
    def swap(folder):
        path = min(folder.rglob("*.ids"))
        content = path.read_bytes()
        path.write_bytes(content[16:32] + content[:16] + content[32:])

    whole, cache = made(tmp_path, CORPUS_NODE), made(tmp_path, CACHE_NODE)
    (violation,) = check_token_cache(committed_with(cache, swap), whole)
    assert "token rows for" in violation and "in another order" in violation


def test_a_document_without_its_end_token_is_named(tmp_path):
    def replace_an_end(folder):
        ends = np.fromfile(min(folder.rglob("*.ends")), dtype="<i8")
        tokens = np.fromfile(min(folder.rglob("*.tokens")), dtype="<u2")
        tokens[ends[2] - 1] = 5
        tokens.tofile(min(folder.rglob("*.tokens")))

    whole, cache = made(tmp_path, CORPUS_NODE), made(tmp_path, CACHE_NODE)
    assert check_token_cache(committed_with(cache, replace_an_end), whole) == ["a document does not end with token 0"]


def test_a_cache_that_changed_after_its_commit_is_named(tmp_path):
    whole, cache = made(tmp_path, CORPUS_NODE), made(tmp_path, CACHE_NODE)
    path = cache.files(".ids")[0]
    content = path.read_bytes()
    path.write_bytes(content[16:32] + content[:16] + content[32:])
    (violation,) = check_token_cache(cache, whole)
    assert f"file tokens/{path.name} has digest" in violation


def test_tokens_cut_short_are_named(tmp_path):
    whole, cache = made(tmp_path, CORPUS_NODE), made(tmp_path, CACHE_NODE)
    path = cache.files(".tokens")[0]
    path.write_bytes(path.read_bytes()[:-2])
    (violation,) = check_token_cache(cache, whole)
    assert "shard shard-00000 holds" in violation
