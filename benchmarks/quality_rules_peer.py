"""datatrove's half of benchmarks/quality_rules.py; runs in a separate environment, where nothing of ours is.

PEER/bin/python benchmarks/quality_rules_peer.py DOCUMENTS.parquet OUT.json --mode speed|rules
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import cache
from importlib.metadata import version

import pyarrow.parquet as pq
from datatrove.data import Document
from datatrove.pipeline.filters import (
    C4ParagraphFilter,
    C4QualityFilter,
    FineWebQualityFilter,
    GopherQualityFilter,
    GopherRepetitionFilter,
    fineweb_quality_filter,
    gopher_quality_filter,
    gopher_repetition_filter,
)
from datatrove.utils import text as text_utils

FILTERS = {
    "gopher_quality": GopherQualityFilter,
    "gopher_repetition": GopherRepetitionFilter,
    "c4": C4QualityFilter,
    "mc4_paragraphs": C4ParagraphFilter,
    "fineweb": FineWebQualityFilter,
}
QUALITY = (
    "min_doc_words", "max_doc_words", "min_avg_word_length", "max_avg_word_length", "max_symbol_word_ratio",
    "max_bullet_lines_ratio", "max_ellipsis_lines_ratio", "max_non_alpha_words_ratio", "min_stop_words",
)  # fmt: skip
REPETITION = ("dup_line_frac", "dup_para_frac", "dup_line_char_frac", "dup_para_char_frac")
NO_REPETITION = dict.fromkeys(REPETITION) | {"top_n_grams": (), "dup_n_grams": ()}
NO_FINEWEB = {"line_punct_thr": 0.0, "short_line_thr": 2.0, "char_duplicates_ratio": 2.0, "new_line_ratio": 1e9}


def one_rule_filters() -> dict[str, Callable]:
    """Our rule's name -> datatrove's filter with every other rule switched off."""
    quality = lambda **only: GopherQualityFilter(**(dict.fromkeys(QUALITY) | only))  # noqa: E731
    repetition = lambda **only: GopherRepetitionFilter(**(NO_REPETITION | only))  # noqa: E731
    c4 = lambda **only: C4QualityFilter(  # noqa: E731
        **({"min_num_sentences": -1, "filter_lorem_ipsum": False, "filter_curly_bracket": False} | only)
    )
    fineweb = lambda **only: FineWebQualityFilter(**(NO_FINEWEB | only))  # noqa: E731
    tops = {f"top_{n}_gram_char_frac": repetition(top_n_grams=((n, f),)) for n, f in ((2, 0.2), (3, 0.18), (4, 0.16))}
    limits = {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.10}
    return {
        "num_words": quality(min_doc_words=50, max_doc_words=100_000),
        "mean_word_chars": quality(min_avg_word_length=3, max_avg_word_length=10),
        "hash_word_ratio or ellipsis_word_ratio": quality(max_symbol_word_ratio=0.1),
        "bullet_line_frac": quality(max_bullet_lines_ratio=0.9),
        "ellipsis_line_frac": quality(max_ellipsis_lines_ratio=0.3),
        "alpha_word_frac": quality(max_non_alpha_words_ratio=0.8),
        "stop_words": quality(min_stop_words=2),
        "duplicate_paragraph_frac": repetition(dup_para_frac=0.3),
        "duplicate_paragraph_char_frac": repetition(dup_para_char_frac=0.2),
        "duplicate_line_frac": repetition(dup_line_frac=0.3),
        "gopher duplicate_line_char_frac": repetition(dup_line_char_frac=0.2),
        **tops,
        **{f"duplicate_{n}_gram_char_frac": repetition(dup_n_grams=((n, limit),)) for n, limit in limits.items()},
        "lorem_ipsum": c4(filter_lorem_ipsum=True),
        "curly_bracket": c4(filter_curly_bracket=True),
        "c4_sentences": c4(min_num_sentences=5),
        "long_lines": C4ParagraphFilter(),
        "terminal_line_frac": fineweb(line_punct_thr=0.12),
        "short_line_frac": fineweb(short_line_thr=0.67),
        "fineweb duplicate_line_char_frac": fineweb(char_duplicates_ratio=0.01),
        "newline_word_ratio": fineweb(new_line_ratio=0.3),
    }


def drops(rule, texts: list[str]) -> list[bool]:
    """Whether each text goes. C4's filter cuts lines out of a document, so every call has one of its own."""
    dropped = []
    for number, text in enumerate(texts):
        kept = rule.filter(Document(text=text, id=str(number)))
        dropped.append(not (kept[0] if isinstance(kept, tuple) else kept))
    return dropped


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("documents")
    parser.add_argument("out")
    parser.add_argument("--mode", choices=("speed", "rules"), required=True)
    options = parser.parse_args()
    texts = pq.read_table(options.documents, columns=["text"])["text"].to_pylist()
    drops(GopherQualityFilter(), texts[:1])  # spaCy loads its language at the first text
    answer: dict = {"datatrove": version("datatrove")}
    if options.mode == "speed":
        seconds = {}
        for name, kind in FILTERS.items():
            started = time.process_time()
            drops(kind(), texts)
            seconds[name] = time.process_time() - started
        answer |= {"cpu_seconds": seconds}
    else:
        words = cache(text_utils.split_into_words)  # rule by rule the same text is tokenized thirty times
        for module in (gopher_quality_filter, gopher_repetition_filter, fineweb_quality_filter):
            module.split_into_words = words
        answer |= {"drops": {name: drops(rule, texts) for name, rule in one_rule_filters().items()}}
        answer |= {"sets": {name: drops(kind(), texts) for name, kind in FILTERS.items()}}
    with open("/proc/self/status") as status:  # noqa: PTH123 (`ru_maxrss` would be what the process that started this one held)
        answer["peak_mib"] = int(status.read().partition("VmHWM:")[2].split()[0]) / 1024
    with open(options.out, "w") as stream:  # noqa: PTH123
        json.dump(answer, stream)


if __name__ == "__main__":
    main()
