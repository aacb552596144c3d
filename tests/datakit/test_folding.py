"""Every way to write the same words gives the same shingles and the same canonical words."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datakit.text.canonical_text import canonical_bytes
from datakit.text.folding import fold
from datakit.text.shingles import jaccard, shingle_hashes

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
