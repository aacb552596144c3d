"""The signals of the published rule sets in plain Python, a document at a time: what the vectorized columns must equal."""

import re
import unicodedata
from collections import Counter
from pathlib import Path

STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
BAD = (Path(__file__).parents[2] / "data/word_lists/ldnoobw_en.txt").read_text().splitlines()
BAD_WORDS = re.compile(r"(?:\W|^)({})(?:\W|$)".format("|".join(map(re.escape, BAD))))
"""As c4_utils.get_badwords_filter_fn has it."""
POLICY = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")


def slow_signals(text: str) -> dict[str, float]:
    words = text.split()
    lines = [line for line in (raw.strip() for raw in text.split("\n")) if line]
    paragraphs = [p for p in re.split(r"\n{2,}", text.strip()) if p]
    repeated_lines, repeated_paragraphs = repeats(lines), repeats(paragraphs)
    c4_lines, sentences, lorem, curly = c4(lines)
    return {
        "num_words": len(words),
        "mean_word_chars": frac(sum(map(len, words)), len(words)),
        "hash_word_ratio": frac(text.count("#"), len(words)),
        "ellipsis_word_ratio": frac(text.count("...") + text.count("…"), len(words)),
        "alpha_word_frac": frac(sum(any(unicodedata.category(c)[0] == "L" for c in w) for w in words), len(words)),
        "stop_words": sum(bool(re.search(rf"\b{word}\b", text.lower())) for word in STOP_WORDS),
        "duplicate_line_frac": frac(len(repeated_lines), len(lines)),
        "duplicate_line_char_frac": frac(sum(map(len, repeated_lines)), len(text.replace("\n", ""))),
        "duplicate_paragraph_frac": frac(len(repeated_paragraphs), len(paragraphs)),
        "duplicate_paragraph_char_frac": frac(sum(map(len, repeated_paragraphs)), len(text)),
        "bullet_line_frac": frac(sum(line[0] in "•-" for line in lines), len(lines)),
        "ellipsis_line_frac": frac(sum(line.endswith(("...", "…")) for line in lines), len(lines)),
        "terminal_line_frac": frac(sum(line[-1] in ".?!。" for line in lines), len(lines)),
        "short_line_frac": frac(sum(len(line) <= 30 for line in lines), len(lines)),
        "newline_word_ratio": frac(text.count("\n"), len(words)),
        "c4_line_frac": frac(c4_lines, len(lines)),
        "c4_sentences": sentences,
        "lorem_ipsum": int(lorem),
        "curly_bracket": int(curly),
        "bad_words": int(bool(BAD_WORDS.search(text.lower()))),
        "long_lines": sum(len(line) >= 200 for line in lines),
        **{f"top_{n}_gram_char_frac": frac(top_gram_chars(words, n), len(text)) for n in (2, 3, 4)},
        **{f"duplicate_{n}_gram_char_frac": frac(repeated_gram_chars(words, n), len(text)) for n in (5, 6, 7, 8, 9, 10)},
    }


def frac(count: float, total: float) -> float:
    return count / total if total else 0.0


def repeats(items: list[str]) -> list[str]:
    seen: set[str] = set()
    return [item for item in items if item in seen or seen.add(item)]


def c4(lines: list[str]) -> tuple[int, int, bool, bool]:
    """Lines kept, their sentences, and whether the document would go for its words (c4_utils.clean_page)."""
    kept, lorem, curly = [], False, False
    for line in (re.sub(r"\[\d*\]|\[edit\]|\[citation needed\]", "", line) for line in lines):
        lower = line.lower()
        if any(len(w) > 1000 for w in line.split()) or not line.endswith((".", "?", "!", '"', "'")) or line.endswith("..."):
            continue
        if len(line.split()) < 3:
            continue
        lorem |= "lorem ipsum" in lower
        if "javascript" in lower:
            continue
        curly |= "{" in line
        if not any(phrase in lower for phrase in POLICY):
            kept.append(line)
    sentences = sum(max(1, len(re.findall(r"""[.?!]+["')\]]*(?:\s|$)""", line))) for line in kept)
    return len(kept), sentences, lorem, curly


def top_gram_chars(words: list[str], n: int) -> int:
    grams = Counter(" ".join(words[i : i + n]) for i in range(len(words) - n + 1))
    return len(grams.most_common(1)[0][0]) * grams.most_common(1)[0][1] if grams else 0


def repeated_gram_chars(words: list[str], n: int) -> int:
    seen: set[tuple[str, ...]] = set()
    covered: set[int] = set()
    for i in range(len(words) - n + 1):
        gram = tuple(words[i : i + n])
        if gram in seen:
            covered |= set(range(i, i + n))
        seen.add(gram)
    return sum(len(words[i]) for i in covered)
