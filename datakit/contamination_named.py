"""Contamination as others define it: named policies beside the recommended one, as frozen configs.

A named policy says when a *document* is contaminated, by its authors' definition and with their numbers; sources are in the
docstrings (surveyed in research/data_peers_measured.md, section 7). None of them has grades, so every match of one is of the
tier `near`. Items and documents are cut into words in `contamination_named_words.py`, indexed and scanned in
`contamination_named_scan.py`. What they miss and mark falsely: benchmarks/notes/, `planted-leaks`.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class MarinPolicy:
    """At least half of the features of one paragraph are features of a benchmark record.

    `marin-community/marin`, `lib/marin/src/marin/datakit/decon.py`, feature filter 3: paragraphs between blank lines; words
    between white space with their case and punctuation; features are the 13-grams with a letter in them; a paragraph of 3 to 12
    words with a letter is one feature; so is a text of 3 to 12 words none of whose paragraphs has one. Left out: the drop set
    of grams common in a corpus, which is optional there. An exact index stands for the Bloom filter of 1e-9.
    """

    policy: str = "marin-13gram"
    kind: Literal["marin"] = "marin"
    gram_words: int = 13
    min_short_words: int = 3
    overlap_threshold: float = 0.5
    num_canaries: int = 24
    min_canary_recall: float = 0.95

    def __post_init__(self) -> None:
        if not 1 <= self.min_short_words < self.gram_words:
            raise ValueError(f"min_short_words is {self.min_short_words}; it must be in 1..gram_words ({self.gram_words}) - 1")
        check_share("overlap_threshold", self.overlap_threshold)
        check_canaries(self.num_canaries, self.min_canary_recall)


@dataclass(frozen=True)
class TuluPolicy:
    """More than half of a prompt's tokens lie in 8-grams that the document holds as phrases.

    `allenai/open-instruct`, `decontamination/search.py`: 8-grams of spaCy tokens of the question, `match_phrase` in
    Elasticsearch, share of the question's tokens found in a document, with the 0.5 of the Tulu 3 paper. Our own cut of English
    stands for spaCy's tokenizer (the same spans for 96 % of 9,651 questions). Phrases are compared as `tulu_analyzer` of
    `index.py` cuts them, lower case and few separators; that file defines it without giving it to the field, and the standard
    analyzer, which drops all punctuation, marks ten times as many documents of our corpus (610 of 14,922, most of them
    formulas). No limit of hits a phrase (the original sees the ten best documents). It marks documents, where the original
    drops a training set once 2 % of an eval are in it.
    """

    policy: str = "olmo-tulu-8gram"
    kind: Literal["tulu"] = "tulu"
    gram_tokens: int = 8
    overlap_threshold: float = 0.5
    num_canaries: int = 24
    min_canary_recall: float = 0.9

    def __post_init__(self) -> None:
        check_count("gram_tokens", self.gram_tokens)
        check_share("overlap_threshold", self.overlap_threshold)
        check_canaries(self.num_canaries, self.min_canary_recall)


@dataclass(frozen=True)
class GptPolicy:
    """One n-gram of a benchmark record is in the document, unless more than ten documents hold it.

    GPT-3's paper (arXiv 2005.14165), appendix C: words are lower case, between white space, without punctuation. Its filter of
    the training set takes 13-grams and ignores those in more than 10 training documents. Its overlap study takes, for each
    benchmark, the 5th percentile of its examples' lengths, at least 8 and at most 13 (`min_gram_words` below `gram_words`).
    Punctuation is what EleutherAI's `janitor` removes, ASCII's. "Training documents" are those of the scanned source: each is
    scanned alone. The original cuts 200 characters either side out of the document; here documents are marked.
    """

    policy: str = "gpt3-13gram"
    kind: Literal["gpt3"] = "gpt3"
    gram_words: int = 13
    min_gram_words: int = 13
    length_percentile: int = 5
    max_documents: int = 10
    """A gram in more documents of the source than this is ignored; 0 ignores none."""
    num_canaries: int = 24
    min_canary_recall: float = 0.95

    def __post_init__(self) -> None:
        check_count("min_gram_words", self.min_gram_words)
        if self.gram_words < self.min_gram_words:
            raise ValueError(f"gram_words is {self.gram_words}; it must be at least min_gram_words ({self.min_gram_words})")
        if not 0 <= self.length_percentile <= 100 or self.max_documents < 0:
            raise ValueError(
                f"length_percentile is {self.length_percentile}, it must be in 0..100; max_documents is {self.max_documents}, "
                "it must be at least 0"
            )
        check_canaries(self.num_canaries, self.min_canary_recall)


@dataclass(frozen=True)
class DatatrovePolicy:
    """One 12-gram of an answer, or across the seam of question and answer, is in the document.

    datatrove 0.10.1, `pipeline/decont/n_grams.py` with its defaults (query-only grams off) and `utils/text.py:
    simplify_text`: lower case, every number `0`, punctuation a space, diacritics dropped. Its words are spaCy's; here spaces
    separate them, which after `simplify_text` differs on a few words ("dont", "cannot" are two each there). The verdicts on
    1,500 documents were those of the package (benchmarks/notes/2026-11-21-planted-leaks.md). It looks at
    answers, and most are shorter than a gram: no recall is demanded of its canaries, only recorded.
    """

    policy: str = "datatrove-12gram"
    kind: Literal["datatrove"] = "datatrove"
    gram_words: int = 12
    num_canaries: int = 24
    min_canary_recall: float = 0.0

    def __post_init__(self) -> None:
        check_count("gram_words", self.gram_words)
        check_canaries(self.num_canaries, self.min_canary_recall)


@dataclass(frozen=True)
class DolmaPolicy:
    """One line of the document is, character for character, a line of a benchmark record with at least 13 words.

    OLMo's decontamination with Dolma's Bloom filter in paragraph mode (`allenai/dolma`, its decontamination run book:
    paragraphs of at least 13 Unicode words, split at newlines, an exact match drops the document). An exact index stands for
    the Bloom filter of 1e-15. Which lines it can find depends on how prompts are rendered, so no recall is demanded of its
    canaries, only recorded.
    """

    policy: str = "dolma-paragraph"
    kind: Literal["dolma"] = "dolma"
    min_words: int = 13
    num_canaries: int = 24
    min_canary_recall: float = 0.0

    def __post_init__(self) -> None:
        check_count("min_words", self.min_words)
        check_canaries(self.num_canaries, self.min_canary_recall)


type NamedPolicy = MarinPolicy | TuluPolicy | GptPolicy | DatatrovePolicy | DolmaPolicy


def check_count(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name} is {value}; it must be at least 1")


def check_share(name: str, value: float) -> None:
    if not 0 < value <= 1:
        raise ValueError(f"{name} is {value}; a share must be above 0 and at most 1")


def check_canaries(num_canaries: int, min_canary_recall: float) -> None:
    if num_canaries < 1:
        raise ValueError(f"num_canaries is {num_canaries}; a scan that proves nothing is not run, give 1 or more")
    if not 0 <= min_canary_recall <= 1:
        raise ValueError(f"min_canary_recall is {min_canary_recall}; a share must be in 0..1")
