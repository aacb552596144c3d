"""MinHash signatures: pinned values, Jaccard estimates, band keys, invariance to order."""

import re
import unicodedata

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import Texts, documents, file_bytes, made, minhash, random_texts

from datakit.dedup.minhash import MinHashConfig, band_hashes, lowest_hashes, preset, sign_texts
from datakit.text.folding import fold
from datakit.text.shingles import batch_shingles, distinct_in_segments, jaccard, shingle_hashes, word_hashes
from datakit.text.word_kinds import kind, split_words, word_kinds

U64 = (1 << 64) - 1
NAMED = st.characters(exclude_categories=["Cs", "Cn", "Co"])
TEXT = st.text(st.one_of(NAMED, st.sampled_from("aAbB12 ,.\n_-é“”’—\xa0\xad\u200b中文かタ。ไท")), max_size=80)
WITHOUT_SPACES = re.compile(
    r"(COMBINING |HALFWIDTH )?(HIRAGANA|KATAKANA|THAI|LAO|MYANMAR|KHMER)\b|VERTICAL (KANA|IDEOGRAPHIC)|HENTAIGANA"
    r"|CJK (UNIFIED|COMPATIBILITY) IDEOGRAPH|IDEOGRAPHIC (?!ANNOTATION|TALLY)|HANGZHOU|MASU MARK|HANGUL (SINGLE|DOUBLE) DOT"
)
GOLDEN_SIZE = 13
GOLDEN_BANDS = [
    8217811954049877336,
    6779183520024960744,
    876455529895788164,
    9307262754701316721,
    5312985964671184941,
    15716686597586511566,
    15525875515187584164,
    13997403675823588259,
    3878094633985343429,
    1390547314245493769,
    12903537205275766508,
    16523699743233838452,
    7755300326415115999,
    8267520801294418743,
]


def slow_mix(value: int) -> int:
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & U64
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & U64
    return value ^ (value >> 31)


def slow_words(text: str) -> list[str]:
    """Split words by the names of characters: put spaces where words end, and remove format characters."""
    spaced = ""
    for character in text:
        category, name = unicodedata.category(character), unicodedata.name(character, "")
        if category[0] in "PSZ" or category == "Cc":
            spaced += " "
        elif category != "Cf":
            spaced += f" {character} " if WITHOUT_SPACES.match(name) else character
    return [word for word in spaced.split(" ") if word]


def slow_shingles(text: str, words: int) -> list[int]:
    """The definition, a byte at a time."""
    hashes = []
    for word in slow_words(fold(text)):
        lowered = word.encode().lower()
        polynomial = sum((byte + 1) * pow(0x9E3779B97F4A7C15, i, 1 << 64) for i, byte in enumerate(lowered))
        hashes.append(slow_mix((polynomial + len(lowered)) & U64))
    mixed = set()
    for start in range(len(hashes) - words + 1):
        combined = 0
        for value in hashes[start : start + words]:
            combined = (combined * 0xD6E8FEB86659FD93 + value) & U64
        mixed.add(slow_mix(combined))
    return sorted(mixed)


@given(TEXT, st.integers(1, 6))
def test_shingles_are_those_of_the_definition(text, words):
    assert shingle_hashes(text, words).tolist() == slow_shingles(text, words)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_split_words_are_those_that_are_hashed(text):
    """This covers unassigned characters too, because a scorer recognizes their words by them."""
    hashes, _ = word_hashes([text])
    assert hashes.tolist() == [word_hashes([word])[0].item() for word in split_words(fold(text))]


def test_every_character_is_to_a_word_what_its_name_says():
    looked_at = map(chr, (*range(0x21000), *range(0xE0000, 0xE0200)))
    named = [character for character in looked_at if unicodedata.category(character) not in ("Cn", "Co", "Cs")]
    kinds = word_kinds()
    for character in named:
        wanted = slow_words(f"a{character}b")
        assert split_words(f"a{character}b") == wanted, f"U+{ord(character):04X} {unicodedata.name(character, '')}"
        assert kinds[ord(character)] == kind(character)


def test_words_are_the_same_in_typographic_and_in_plain_quotes_dashes_and_spaces():
    plain = """"Well," said the captain - and he didn't look up - "we sail at 5 o'clock, with or without them." """
    typographic = "“Well,” said the captain — and he didn’t look up – “we sail\xa0at 5\u202fo’clock, with or with\xadout them.”"
    assert split_words(plain) == split_words(typographic)
    assert shingle_hashes(plain, 5).tolist() == shingle_hashes(typographic, 5).tolist()


def test_scripts_without_spaces_have_a_word_a_character():
    text = "人工知能の研究は、二十世紀に始まった。"
    assert len(split_words(text)) == 17
    edited = text.replace("研究", "開発")
    assert 0 < jaccard(shingle_hashes(text, 5), shingle_hashes(edited, 5)) < 1


@given(st.lists(TEXT, max_size=8), st.integers(1, 5))
def test_no_shingle_crosses_from_one_text_to_the_next(texts, words):
    hashes, bounds = batch_shingles(texts, words)
    assert bounds[0] == 0 and bounds[-1] == hashes.size and bounds.size == len(texts) + 1
    for i, text in enumerate(texts):
        assert np.unique(hashes[bounds[i] : bounds[i + 1]]).tolist() == slow_shingles(text, words)


@given(st.lists(st.lists(st.integers(0, 40), max_size=30), max_size=5), st.integers(0, 63))
def test_distinct_hashes_are_each_kept_once_where_they_first_stand(segments, shift):
    """Also hashes that differ in a few bits only, which take the same places of the table."""
    values = np.array([value << shift & U64 for segment in segments for value in segment], np.uint64)
    bounds = np.cumsum([0, *map(len, segments)])
    kept, new_bounds = distinct_in_segments(values, bounds)
    for i in range(len(segments)):
        wanted = dict.fromkeys(values[bounds[i] : bounds[i + 1]].tolist())
        assert kept[new_bounds[i] : new_bounds[i + 1]].tolist() == list(wanted)


@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)))
def test_jaccard_is_that_of_the_sets(a, b):
    similarity = jaccard(np.array(sorted(a), np.uint64), np.array(sorted(b), np.uint64))
    assert similarity == (len(a & b) / len(a | b) if a | b else 0)


def test_case_and_punctuation_do_not_matter_and_the_order_of_words_does():
    plain = "the quick brown fox jumps over the lazy dog"
    assert np.array_equal(shingle_hashes("The QUICK brown, fox--jumps\nover 'the' lazy dog!", 5), shingle_hashes(plain, 5))
    backwards = " ".join(reversed(plain.split()))
    assert jaccard(shingle_hashes(backwards, 5), shingle_hashes(plain, 5)) == 0


def test_different_shingles_have_different_hashes():
    text = " ".join(str(number) for number in range(50_000))
    assert shingle_hashes(text, 5).size == 49_996


def test_signatures_are_pinned():
    """Signatures on storage are compared with new ones; other values here need a new stage version."""
    bands, sizes = sign_texts(
        ["It was the best of times, it was the worst of times, it was the age of wisdom."], MinHashConfig()
    )
    assert sizes.tolist() == [GOLDEN_SIZE]
    assert bands[0].tolist() == GOLDEN_BANDS


@given(st.lists(st.one_of(TEXT, st.sampled_from(random_texts(5, 40, seed=1))), min_size=1, max_size=6))
def test_a_signature_does_not_depend_on_the_batch(texts):
    config = MinHashConfig(bands=3, rows=2, ngram_words=2)
    together, sizes = sign_texts(texts, config)
    for i, text in enumerate(texts):
        alone, size = sign_texts([text], config)
        assert (size, alone[0].tolist()) == ([sizes[i]], together[i].tolist())


def test_equal_minima_estimate_the_jaccard_similarity():
    config = MinHashConfig(bands=512, rows=2)
    words = random_texts(1, 600, seed=2)[0].split()
    texts = [" ".join(words[:400]), " ".join(words[100:])]
    lowest = lowest_hashes(*batch_shingles(texts, config.ngram_words), config)
    exact = jaccard(*(shingle_hashes(text, config.ngram_words) for text in texts))
    sigma = (exact * (1 - exact) / lowest.shape[1]) ** 0.5
    assert abs(float((lowest[0] == lowest[1]).mean()) - exact) < 4 * sigma


def test_a_band_tells_which_band_it_is():
    """Equal rows in different bands are not candidates."""
    config = MinHashConfig(bands=4, rows=2)
    assert np.unique(band_hashes(np.ones((1, 8), np.uint64), config)).size == 4


def test_the_table_has_the_documents_ids_in_their_order_and_files(tmp_path):
    config = Texts("here", (*random_texts(40, 60, seed=3), "too short to sign", "four words are few"), part_bytes=4_000)
    signed, source = made(tmp_path, minhash(config)), made(tmp_path, documents(config))
    names = [path.name for path in source.files(".parquet")]
    assert len(names) > 2 and [path.name for path in signed.files()] == names
    for left, right in zip(signed.files(), source.files(".parquet"), strict=True):
        assert pl.read_parquet(left)["id"].equals(pl.read_parquet(right)["id"])
    table = pl.concat([pl.read_parquet(path) for path in signed.files()])
    assert table.filter(pl.col("num_shingles") == 0)["bands"].null_count() == 2
    assert set(table.filter(pl.col("num_shingles") > 0)["bands"].list.len()) == {14}
    assert signed.manifest.statistics["too_short_to_sign"] == 2


def test_two_workers_write_the_same_bytes_as_one(tmp_path):
    config = Texts("here", tuple(random_texts(30, 60, seed=4)), part_bytes=4_000)
    one, two = (made(tmp_path / str(workers), minhash(config), workers) for workers in (1, 2))
    assert file_bytes(one) == file_bytes(two)


@pytest.mark.parametrize("name", ["bands", "rows", "ngram_words"])
def test_a_count_below_one_is_refused_by_name(name):
    with pytest.raises(ValueError, match=f"minhash.{name} is 0"):
        MinHashConfig(**{name: 0})


@pytest.mark.parametrize(("name", "bands", "rows"), [("14x8", 14, 8), ("20x5", 20, 5), ("26x11", 26, 11)])
def test_a_preset_is_named_after_its_bands_and_rows(name, bands, rows):
    assert (preset(name).bands, preset(name).rows) == (bands, rows)


def test_an_unknown_preset_is_refused_with_the_names_there_are():
    with pytest.raises(ValueError, match="preset is '9x9'; allowed: 14x8, 20x5, 26x11"):
        preset("9x9")
