"""The token cache: round trips across shards; files that disagree with the manifest are refused."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.order.token_arrays import SHORT_ROW
from lineage.order.token_cache import TokenCache
from lineage.order.token_shards import FOLDER, token_dtype, tokens_extra, write_flat_shard, write_token_shard
from lineage.stage import Stage
from lineage.writing.writer import Writer


@dataclass(frozen=True)
class Shards:
    """Documents of every shard, as their tokens."""

    shards: tuple[tuple[tuple[int, ...], ...], ...]
    dtype: str = "uint16"


def document_id(index: int) -> str:
    return f"{index + 1:032x}"


def write_cache(out: Writer, config: Shards) -> None:
    written, index = [], 0
    for number, documents in enumerate(config.shards):
        rows = [(document_id(index + i), np.array(tokens, np.int64)) for i, tokens in enumerate(documents)]
        written.append(write_token_shard(out.folder, f"shard-{number:03d}", rows, config.dtype))
        index += len(documents)
    out.facts["tokens"] = tokens_extra("c", config.dtype, 1 << 16, "tokenizer-version", 1, None, written[::-1])


CACHE = Stage("tests.token_cache", "1", write_cache)


def write_nothing(out: Writer, config: Shards) -> None:
    (out.folder / "note.txt").write_text("no tokens")


NO_CACHE = Stage("tests.no_token_cache", "1", write_nothing)


def cache_of(root: Path, shards: Shards, stage: Stage = CACHE) -> Artifact:
    return build(Store(str(root)), Node(("cache",), None, stage, shards)).artifact


documents = st.lists(st.integers(0, 65535), max_size=7).map(tuple)
shards = st.builds(Shards, st.lists(st.lists(documents, max_size=4).map(tuple), min_size=1, max_size=3).map(tuple))


def overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return max(one[0], other[0]) < min(one[1], other[1])


@given(shards)
def test_what_goes_in_comes_out(tmp_path_factory: pytest.TempPathFactory, config: Shards) -> None:
    cache = TokenCache.open(cache_of(tmp_path_factory.mktemp("store"), config))
    everything = [tokens for shard in config.shards for tokens in shard]
    flat = [token for tokens in everything for token in tokens]
    assert (cache.num_tokens, cache.num_documents) == (len(flat), len(everything))
    assert cache.document_ids() == [document_id(i) for i in range(len(everything))]
    assert cache.read(0, len(flat)).tolist() == flat
    spans = [cache.document_span(document_id(i)) for i in range(len(everything))]
    assert [flat[span[0] : span[1]] for span in spans if span is not None] == [list(tokens) for tokens in everything]


@given(shards, st.data())
def test_a_span_reads_its_tokens_and_names_the_documents_with_one_in_it(
    tmp_path_factory: pytest.TempPathFactory, config: Shards, data: st.DataObject
) -> None:
    cache = TokenCache.open(cache_of(tmp_path_factory.mktemp("store"), config))
    flat = [token for shard in config.shards for tokens in shard for token in tokens]
    spans = [cache.document_span(document) for document in cache.document_ids()]
    start = data.draw(st.integers(0, len(flat)))
    stop = data.draw(st.integers(start, len(flat)))
    assert cache.read(start, stop).tolist() == flat[start:stop]
    named = cache.documents_between(start, stop)
    assert named == [(document_id(i), *span) for i, span in enumerate(spans) if span and overlap(span, (start, stop))]


@given(shards, st.data())
def test_pieces_read_together_are_pieces_read_alone(
    tmp_path_factory: pytest.TempPathFactory, config: Shards, data: st.DataObject
) -> None:
    """Across the borders of shards too, in any order, a start more than once, whole rows and parts of them."""
    cache = TokenCache.open(cache_of(tmp_path_factory.mktemp("store"), config))
    if not cache.num_tokens:
        return
    row = data.draw(st.sampled_from([1, 2, 3, cache.num_tokens, SHORT_ROW + 1]))
    lengths = data.draw(st.lists(st.integers(1, min(row, cache.num_tokens)) | st.just(min(row, cache.num_tokens)), max_size=6))
    starts = [data.draw(st.integers(0, cache.num_tokens - length)) for length in lengths]
    offsets = [data.draw(st.integers(0, row - length)) for length in lengths]
    rows = data.draw(st.permutations(range(len(lengths))))
    out, wanted = np.full((len(lengths) + 1, row), -1), np.full((len(lengths) + 1, row), -1)
    at = np.array(rows, np.int64) * row + np.array(offsets, np.int64)
    cache.read_pieces_into(np.array(starts, np.int64), np.array(lengths, np.int64), out, at)
    for number, start, length, offset in zip(rows, starts, lengths, offsets, strict=True):
        wanted[number, offset : offset + length] = cache.read(start, start + length)
    assert out.tolist() == wanted.tolist()


def test_pieces_want_rows_that_follow_each_other_and_tokens_that_are_there(tmp_path: Path) -> None:
    cache = TokenCache.open(cache_of(tmp_path, Shards((((1, 2, 3), (4, 5, 6)),))))
    start, length, at = np.array([2]), np.array([2]), np.array([0])
    with pytest.raises(ValueError, match="must follow each other in memory"):
        cache.read_pieces_into(start, length, np.zeros((2, 4), np.int32).T, at)
    with pytest.raises(ValueError, match=r"span \[5, 7\) is outside its 6 tokens"):
        cache.read_pieces_into(start + 3, length, np.zeros((1, 2), np.int32), at)
    with pytest.raises(ValueError, match="0 of 1 arrays are mapped; use read_into"):
        cache.read_pieces_into(start, length, np.zeros((1, 2), np.int32), at, weights=True)


def test_shards_count_as_one_array_in_name_order(tmp_path: Path) -> None:
    cache = TokenCache.open(cache_of(tmp_path, Shards((((1, 2), (3,)), ((4, 5, 6),)))))
    assert [shard.name for shard in cache.shards] == ["shard-000", "shard-001"]
    assert cache.read(1, 5).tolist() == [2, 3, 4, 5]
    assert cache.documents_between(2, 4) == [(document_id(1), 2, 3), (document_id(2), 3, 6)]


def test_facts_of_the_manifest_reach_the_reader(tmp_path: Path) -> None:
    cache = TokenCache.open(cache_of(tmp_path, Shards((((1,),),))))
    assert (cache.component, cache.tokenizer, cache.vocab_size, cache.bos, cache.eos) == (
        "c",
        "tokenizer-version",
        1 << 16,
        1,
        None,
    )


def test_an_unknown_document_has_no_span(tmp_path: Path) -> None:
    assert TokenCache.open(cache_of(tmp_path, Shards((((1,),),)))).document_span("f" * 32) is None


@pytest.mark.parametrize("span", [(-1, 2), (0, 4), (2, 1)])
def test_a_span_outside_is_refused_by_value(tmp_path: Path, span: tuple[int, int]) -> None:
    cache = TokenCache.open(cache_of(tmp_path, Shards((((1, 2, 3),),))))
    with pytest.raises(ValueError, match=rf"span \[{span[0]}, {span[1]}\) is outside its 3 tokens"):
        cache.read(*span)


@pytest.mark.parametrize(("dtype", "highest"), [("uint16", 2**16 - 1), ("uint32", 2**32 - 1)])
def test_the_highest_token_fits_and_the_next_is_refused_by_document(tmp_path: Path, dtype: str, highest: int) -> None:
    cache = TokenCache.open(cache_of(tmp_path, Shards((((highest,),),), dtype)))
    assert int(cache.read(0, 1)[0]) == highest
    assert token_dtype(highest + 1) == dtype
    with pytest.raises(ValueError, match=f"document {document_id(0)}: token {highest + 1} does not fit {dtype}"):
        write_token_shard(tmp_path, "s", [(document_id(0), np.array([0, highest + 1]))], dtype)


def test_negative_tokens_and_unknown_types_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"document {document_id(3)}: .* does not fit uint16"):
        write_token_shard(tmp_path, "s", [(document_id(3), np.array([-1, 5]))], "uint16")
    with pytest.raises(ValueError, match="token dtype 'int8' of shard s; allowed: uint16, uint32"):
        write_token_shard(tmp_path, "s", [], "int8")


@pytest.mark.parametrize(("suffix", "cut"), [("tokens", 2), ("ends", 8), ("ids", 16)])
def test_a_file_cut_short_is_refused_with_its_shard(tmp_path: Path, suffix: str, cut: int) -> None:
    artifact = cache_of(tmp_path, Shards((((1, 2), (3,)), ((4,),))))
    path = artifact.folder() / FOLDER / f"shard-000.{suffix}"
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(ValueError, match=r"shard-000.*manifest says 3 tokens.* 2 documents"):
        TokenCache.open(artifact)


def test_ends_that_stop_before_the_tokens_are_refused(tmp_path: Path) -> None:
    artifact = cache_of(tmp_path, Shards((((1, 2), (3,)),)))
    np.array([2, 2], "<i8").tofile(artifact.folder() / FOLDER / "shard-000.ends")
    with pytest.raises(ValueError, match=r"document ends.*3"):
        TokenCache.open(artifact)


def test_an_artifact_without_tokens_is_no_cache(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cache is no token cache of format tokens/1; its manifest says None"):
        TokenCache.open(cache_of(tmp_path, Shards(()), NO_CACHE))


WEIGHED = st.lists(st.lists(st.tuples(st.integers(0, 90), st.integers(0, 3)), max_size=5), min_size=1, max_size=4)


@given(WEIGHED, st.sampled_from(["uint8", "float32"]), st.data())
def test_weights_stand_beside_their_tokens(tmp_path_factory, shards, kind, data):
    """Several shards of documents of (token, weight): spans of the two arrays stay aligned."""
    cache = TokenCache.open(cache_of(tmp_path_factory.mktemp("store"), (shards, kind), WEIGHTED))
    flat = [pair for shard in shards for pair in shard]
    start = data.draw(st.integers(0, len(flat)))
    stop = data.draw(st.integers(start, len(flat)))
    assert cache.has_weights and cache.weights_dtype == kind
    assert (
        list(zip(cache.read(start, stop).tolist(), cache.read_weights(start, stop).tolist(), strict=True)) == flat[start:stop]
    )
    assert cache.read_weights(start, stop).dtype == np.float32


def test_a_cache_without_weights_has_ones(tmp_path):
    cache = TokenCache.open(cache_of(tmp_path, Shards((((1, 2, 3),),))))
    assert not cache.has_weights and cache.read_weights(1, 3).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.array([1, 0], np.uint8), "weights of shape (2,); one a token is needed"),
        (np.array([1, np.nan, 0], np.float32), "they must be finite and >= 0"),
        (np.array([1, -1, 0], np.float32), "weights of shard s go from -1.0 to 1.0"),
        (np.array([1, 1, 0], np.int64), "weights of shard s are int64; allowed: uint8, float32"),
    ],
)
def test_weights_that_are_none_are_refused(tmp_path, weights, message):
    with pytest.raises(ValueError) as error:
        write_flat_shard(tmp_path, "s", [document_id(0)], np.arange(3), np.array([3]), "uint16", weights)
    assert message in str(error.value)


def test_ends_must_rise_to_the_tokens(tmp_path):
    for ends in ([2], [3, 2], [1, 2, 3]):
        with pytest.raises(ValueError, match="which must rise to 3 tokens"):
            write_flat_shard(tmp_path, "s", [document_id(i) for i in range(2)], np.arange(3), np.array(ends), "uint16")


def _weighted(out, config):
    shards, kind = config
    infos = []
    for index, pairs in enumerate(shards):
        tokens, weights = (np.array([pair[i] for pair in pairs], np.int64) for i in range(2))
        ends = np.array([tokens.size])
        infos.append(
            write_flat_shard(out.folder, f"s{index}", [document_id(index)], tokens, ends, "uint16", weights.astype(kind))
        )
    out.facts["tokens"] = tokens_extra("c", "uint16", 100, "tokenizer", None, None, infos, weights=kind)


WEIGHTED = Stage("tests.weighted", "1", _weighted)
