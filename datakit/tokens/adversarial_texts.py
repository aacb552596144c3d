"""Texts on which tokenizers disagree or may disagree. Every engine must give the reference's ids on all of them.

Peers fail here: tiktoken's regex overflows the stack on long runs, tokie differs in 5 % of documents, kitoken on
GPT-2's split, and every peer by default reads a quoted special token as the real one (docs/references.md).
"""

import itertools
import unicodedata
from collections.abc import Iterable

from tokenizers import AddedToken

LONG_RUN = 1 << 13
"""Long enough for many tokens and to show quadratic work, short enough for the reference: .5 s a megabyte of spaces."""

EDGES = (
    "",
    " ",
    "\n",
    "\t",
    "\r\n",
    "\x00",
    "a",
    "  a",
    "a  ",
    " \r\n\t \r\n ",
    "\n\n\n x",
    "x\n \n  \n   y",
    "a \n",
    "\x0b\x0c\x1c\x1d\x1e\x1f\x85",
    "\u00a0 \u1680\u2000\u2003\u2028\u2029\u202f\u205f\u3000",
    "\u180e\u200b\u2060\ufeff",
    "\ufeffa BOM first",
    "a\u00adsoft hyphen",
)
CONTRACTIONS = (
    "don't I'll we've they're it's I'd I'm",
    "DON'T I'LL WE'VE THEY'RE IT'S",
    "'s's 's'S 'ſ 'ſt K's",
    "it\u2019s \u2018quoted\u2019",
)
NUMBERS = (
    "1234567890",
    "3.14159e-10 1,000,000 0x1F 1_000",
    "٣٤٥ १२३ 一二三 Ⅷ ½ ² ₃ ①",
    "１２３４５",
    "1" * 1000,
    "1a2b3c 4 d5",
    "\U0001d7d8\U0001d7e9",
)
MARKS = (
    "\u0301",
    "\u0301alone and e\u0301 and \u0301",
    "a\u0301\u0327\u0323\u0308 " * 3,
    "\u0e01\u0e33\u0e49 \u0939\u093f\u0928\u094d\u0926\u0940",
    "z" + "\u0300" * 300,
    "\u20dd\u20e3 5\ufe0f\u20e3",
    "\u09bc\u09cd\u200d\u200c",
    "\u1100\u1161\u11a8 각 \u314f",
)
COMPOSED = "Ångström café naïve ﬁ Ǆ ǅ ẞß İı Σσς Ω Ω K K é"
EMOJI = ("👨‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇩🇪🇫🇷 ☺︎☺️", "🙂" * 50, "a🙂b 🙂 c", "\U0001f468\u200d", "\ufe0f\ufe0f")
RIGHT_TO_LEFT = ("שלום עולם", "السلام عليكم ١٢٣", "abc \u202eשלום\u202c def \u200f\u200e", "פּ ﷽ لا")
SCRIPTS = (
    "字典にない語 漢字かな交じり文。「」",
    "Привет, мир!",
    "ქართული Ελληνικά հայերեն",
    "ไทยไม่มีช่องว่าง",
    "𐍈𐌰 𝒜𝔅 \U00020000",
    "\U0010ffff\ue000\ufdd0\uffff",
)
NEWER = tuple(
    f'a{character}"b {character}1{character},\n'
    for character in (
        "\u0897",
        "\u088f",
        "\ua7cb",
        "\ua7cf",
        "\U00010d40",
        "\U00011de0",
        "\U0001e5d0",
        "\U0002ebf0",
        "\U000323b0",
    )
)
"""Letters, digits and marks of Unicode 15.1, 16 and 17 between characters of other kinds: libraries differ in knowing
them.
"""
CODE = (
    "def f(x):\n    return x  # \ttrailing\n\n\n\tif a<=b: pass\n",
    "a=b+c;//x\r\n\r\n/* */{}[]()<>!@#$%^&*~`|\\'\"",
    "!!!???...---===***" * 20,
    "<|<|>|>|<|endof|><|",
    "http://a.b/c?d=e&f#g user@host",
    "_snake_case camelCase HTTPServer2Go",
    "\\n\\t\\u0041",
    "\x1b[31mred\x1b[0m",
)
LINES = (
    "a\n  b\n\tc\r\n d\n\n\ne\u2028f\x85g\n\u00a0h\n\u3000i\n\x1cj",
    "1\n2\n-3\n'\ns\n's\n'\n's",
    "{\n}\n;\n//\n  //\n /\n\n",
    "x\r\ny\r\r\nz\n\r\nw\n \r v",
    " \n u\n \n\t\n w \n ",
)
"""Characters to put on both sides of a line feed."""
RUNS = tuple(unit * (LONG_RUN // len(unit)) for unit in (" ", "a", "\n", "\t ", "=", "9", "é", "字", "🙂", "ab", " a", "\r\n"))
"""One character, or two in turn, in one piece of text."""


def adversarial_texts(added: Iterable[AddedToken]) -> tuple[str, ...]:
    """Return the fixed texts, and the characters of the tokenizer's own added tokens in places where a document may
    quote them.
    """
    quoted = [_quoting(token.content) for token in added]
    composed = (COMPOSED, *(unicodedata.normalize(form, COMPOSED) for form in ("NFC", "NFD", "NFKC", "NFKD")))
    fixed = (
        *EDGES,
        *CONTRACTIONS,
        *NUMBERS,
        *MARKS,
        *composed,
        *EMOJI,
        *RIGHT_TO_LEFT,
        *SCRIPTS,
        *NEWER,
        *CODE,
        *LINES,
        *RUNS,
        _every_latin_pair(),
    )
    return (*fixed, *itertools.chain.from_iterable(quoted))


def _quoting(literal: str) -> tuple[str, ...]:
    half = len(literal) // 2
    return (
        literal,
        f"before {literal} after",
        f"{literal}{literal}",
        f"x{literal}\n",
        literal[:half] + literal,
        f" {literal.upper()} {literal[:-1]}",
        f"a\n{literal}\n  b\n\t{literal}\n\n c",
    )


def _every_latin_pair() -> str:
    """Return every ordered pair of a byte's worth of characters, once: all classes of the split pattern next to each
    other.
    """
    characters = [chr(code) for code in range(0x20, 0x7F)] + ["\n", "\t", "\r", "\xa0", "é", "字", "٣", "\u0301"]
    return "".join(first + second for first in characters for second in characters)
