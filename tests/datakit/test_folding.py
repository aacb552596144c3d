"""Every way to write the same words gives the same shingles and the same canonical words."""

import unicodedata
from functools import cache

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from datakit.text.canonical_text import canonical_batch, canonical_bytes
from datakit.text.folding import fold, fold_batch
from datakit.text.folding_table import CHANGED, DROPPED, FIRST, FOLLOWS, KEPT, KIND, LEFT, SECOND, folding_table
from datakit.text.shingles import jaccard, shingle_hashes
from datakit.text.word_kinds import word_kinds

TEXTS = {
    "Latin": "Élève, où étais-tu à Noël? Ça suffit déjà; l'été dernier nous avons vu neuf forêts brûlées près de Liège.",
    "German": "Die Straße ist naß und groß; außerdem müssen Füße größer heißen, schließt der weiße Gast.",
    "Cyrillic": "Все счастливые семьи похожи друг на друга, каждая несчастливая семья несчастлива по-своему.",
    "Greek": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα· ΰ και ΐ.",
    "Armenian": "Բոլոր մարդիկ ծնվում են ազատ ու հավասար իրենց արժանապատվությամբ ու իրավունքներով։",
    "Georgian": "ყველა ადამიანი იბადება თავისუფალი და თანასწორი თავისი ღირსებითა და უფლებებით.",
    "Arabic": "يولد جميع الناس أحراراً متساوين في الكرامة والحقوق وقد وهبوا عقلاً وضميراً.",
    "Hebrew": "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם, כולם חוננו בתבונה ובמצפון.",
    "Devanagari": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
    "Thai": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ",
    "Hangul": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다 그리고 이성과 양심을 가졌다.",
    "Kana": "すべての人間は、生まれながらにして自由であり、かつ、ガギグゲゴと尊厳とについて平等である。",
    "ASCII": "All human beings are born free and equal in dignity and rights and they are endowed with reason.",
}
FULL_WIDTH = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}
FORMS = {
    "decomposed": lambda text: unicodedata.normalize("NFD", text),
    "composed": lambda text: unicodedata.normalize("NFC", text),
    "compatibility, decomposed": lambda text: unicodedata.normalize("NFKD", text),
    "upper case": str.upper,
    "lower case": str.lower,
    "title case": str.title,
    "full width": lambda text: text.translate(FULL_WIDTH),
    "zero-width spaces": lambda text: "\u200b".join(text),
    "soft hyphens": lambda text: "\u00ad".join(text),
    "byte order marks": lambda text: f"\ufeff{text}\ufeff",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("script", TEXTS)
def test_a_form_of_a_text_is_that_text(script, form):
    text = TEXTS[script]
    written = FORMS[form](text)
    own, other = shingle_hashes(text, 5), shingle_hashes(written, 5)
    assert own.size >= 5 and jaccard(own, other) == 1.0
    assert canonical_bytes(written).split() == canonical_bytes(text).split()


def test_other_letters_stay_other_words():
    """Folding joins forms of one letter only: accents and scripts stay different."""
    assert len({fold(word) for word in ("resume", "résumé", "rеsume", "resumes")}) == 4


@given(st.text())
def test_folding_twice_is_folding_once(text):
    assert fold(fold(text)) == fold(text)


def test_the_turkish_capital_keeps_its_dot():
    """Unicode folds it to two characters when the language is not known, so it is not the dotless or plain letter."""
    assert fold("İ") == "i\u0307" and fold("I") == "i"


SURROUNDINGS = {
    "alone": ("", ""),
    "letters": ("a", "b"),
    "a letter that composes": ("e", "\u0301"),
    "a letter that composes with nothing": ("\u0915", "\u093c\u094d"),
    "a mark of a middle class": ("\u0e01\u0e38", "\u0e48"),
    "a zero-width space": ("A\u200b", "\u200b\u0323"),
    "letters that are passed at once": ("е" * 9, "\u0300" + "к" * 9),
    "Hangul jamo": ("\u1100", "\u1161\u11a8"),
    "a decomposed syllable": ("\uac00", "\u11a8"),
}
TRAPS = [
    *"aAeİıΣςſßẞǰΐ가각한\ufdfa½ﬁｶㅏ㉶\n ",
    *map(chr, (*range(0x300, 0x346), 0x5BF, 0x64B, 0x653, 0x93C, 0x94D, 0x9BE, 0xE33)),
]


def folded(texts):
    """Fold many texts as signing does. ASCII letters may keep their case, so they lose it here."""
    data = np.frombuffer(b"\xff".join([*(text.encode() for text in texts), b""]), np.uint8)
    return [text.lower().decode() for text in fold_batch(data).tobytes().split(b"\xff")[:-1]]


@cache
def by_action():
    """Return a strategy of characters, from each group that folding treats in one way."""
    actions = folding_table().actions
    wanted = [actions & KIND == kind for kind in (FOLLOWS, CHANGED, DROPPED, LEFT)]
    wanted += [actions & FIRST > 0, actions & SECOND > 0, (actions & KIND == KEPT) & (actions > 0)]
    pools = [[chr(code) for code in np.flatnonzero(chosen)] for chosen in wanted]
    return st.lists(st.one_of(*map(st.sampled_from, [*pools, TRAPS]), st.characters(exclude_categories=["Cs"])), max_size=12)


@pytest.mark.parametrize("surroundings", SURROUNDINGS)
def test_texts_fold_at_once_as_each_alone(surroundings):
    """Every code point that does not fold to itself or that combines, and one of each 61 others, between others."""
    before, after = SURROUNDINGS[surroundings]
    codes = {*np.flatnonzero(folding_table().actions).tolist(), *range(0x110000)[::61]} - {*range(0xD800, 0xE000)}
    texts = [before + chr(code) + after for code in sorted(codes)]
    assert folded(texts) == [fold(text) for text in texts]


@pytest.mark.slow
def test_all_code_points_fold_at_once_as_each_alone():
    texts = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    for before, after in SURROUNDINGS.values():
        around = [before + text + after for text in texts]
        assert folded(around) == [fold(text) for text in around]


@given(st.data())
def test_any_mixture_folds_as_the_definition_says(data):
    before, after = data.draw(st.integers(0, 256)) * "a", 260 * "\u0439"  # The mixtures lie in blocks, anywhere.
    texts = [before, *("".join(data.draw(by_action())) for _ in range(3)), after]
    assert folded(texts) == [fold(text) for text in texts]
    buffer, starts = canonical_batch(texts)
    for text, start, end in zip(texts, starts, starts[1:], strict=False):
        assert buffer[start : end - 1].tobytes() == canonical_bytes(text)


def test_only_what_combines_is_left_to_the_definition():
    """Composed letters, marks that stand in order and case take the table, or folding costs more than signing."""
    kinds = folding_table().actions & KIND
    assert all(kinds[ord(letter)] in (KEPT, CHANGED, FOLLOWS) for text in TEXTS.values() for letter in text)
    assert (kinds == LEFT).sum() < 200


def test_the_definition_of_a_word_changes_with_the_versions_of_stages():
    """Change this digest only with the versions that `datakit.text.folding` names: words on storage were cut by it."""
    characters = "\n".join(chr(code) for code in (*range(0xD800), *range(0xE000, 0x30000)))
    definition = xxhash.xxh3_64_hexdigest(fold(characters).encode() + word_kinds().tobytes())
    assert (unicodedata.unidata_version, definition) == ("15.0.0", "5e816f468b91012f")
