"""Checkers of IFEval's instructions (Zhou et al. 2023, arXiv:2311.07911), by the names and arguments of its data set.

A checker takes a text and the arguments of the instruction and says whether the text follows it. Three are simpler than the
published ones: `english_capital` and `english_lowercase` look at case and not at the language, `number_sentences` splits at
punctuation instead of with NLTK's Punkt model, and `capital_word_frequency` splits at every apostrophe, NLTK at those of
contractions. Not here: `language:response_language`, which needs a language detector.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

CHOICES = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
_FENCES = ("```json", "```Json", "```JSON", "```")
_SENTENCE_END = re.compile(r"[.!?]+[\"'”)\]]*(?=\s|$)")


def _compares(count: int, relation: str, bound: int) -> bool:
    relations = {"less than": count < bound, "at least": count >= bound}
    if relation not in relations:
        raise ValueError(f"relation is {relation!r}; allowed: {', '.join(relations)}")
    return relations[relation]


def _keywords(text: str, keywords: Sequence[str]) -> bool:
    return all(re.search(re.escape(keyword), text, re.IGNORECASE) for keyword in keywords)


def _keyword_frequency(text: str, keyword: str, frequency: int, relation: str) -> bool:
    return _compares(len(re.findall(re.escape(keyword), text, re.IGNORECASE)), relation, frequency)


def _forbidden_words(text: str, forbidden_words: Sequence[str]) -> bool:
    return not any(re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE) for word in forbidden_words)


def _letter_frequency(text: str, letter: str, let_frequency: int, let_relation: str) -> bool:
    return _compares(text.lower().count(letter.lower()), let_relation, let_frequency)


def _number_sentences(text: str, num_sentences: int, relation: str) -> bool:
    pieces = [piece for piece in _SENTENCE_END.split(text) if piece.strip()]
    return _compares(len(pieces), relation, num_sentences)


def _number_words(text: str, num_words: int, relation: str) -> bool:
    return _compares(len(re.findall(r"\w+", text)), relation, num_words)


def _number_paragraphs(text: str, num_paragraphs: int) -> bool:
    """Paragraphs between `***`; an empty one is allowed at either end only."""
    pieces = re.split(r"\s?\*\*\*\s?", text)
    inner = pieces[1:-1] if len(pieces) > 2 else []
    return all(piece.strip() for piece in inner) and sum(bool(piece.strip()) for piece in pieces) == num_paragraphs


def _nth_paragraph_first_word(text: str, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    pieces = text.split("\n\n")
    count = sum(bool(piece.strip()) for piece in pieces)
    if not nth_paragraph <= count or not pieces[nth_paragraph - 1].strip():
        return False
    word = pieces[nth_paragraph - 1].split()[0].lstrip("'").lstrip('"')
    return count == num_paragraphs and re.split(r"[.,?!'\"]", word)[0].lower() == first_word.lower()


def _number_placeholders(text: str, num_placeholders: int) -> bool:
    return len(re.findall(r"\[.*?\]", text)) >= num_placeholders


def _postscript(text: str, postscript_marker: str) -> bool:
    known = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}
    return bool(re.search(known.get(postscript_marker, re.escape(postscript_marker.lower())), text.lower()))


def _number_bullets(text: str, num_bullets: int) -> bool:
    stars = re.findall(r"^\s*\*[^\*].*$", text, re.MULTILINE)
    return len(stars) + len(re.findall(r"^\s*-.*$", text, re.MULTILINE)) == num_bullets


def _constrained(text: str) -> bool:
    return any(choice in text for choice in CHOICES)


def _highlights(text: str, num_highlights: int) -> bool:
    """Parts between single stars, and those between double stars once more, as published."""
    single = [part for part in re.findall(r"\*[^\n\*]*\*", text) if part.strip("*").strip()]
    double = [part for part in re.findall(r"\*\*[^\n\*]*\*\*", text) if part.strip("*").strip()]
    return len(single) + len(double) >= num_highlights


def _sections(text: str, section_spliter: str, num_sections: int) -> bool:
    return len(re.split(rf"\s?{re.escape(section_spliter)}\s?\d+\s?", text)) - 1 >= num_sections


def _json(text: str) -> bool:
    text = text.strip()
    for fence in _FENCES:
        text = text.removeprefix(fence)
    try:
        json.loads(text.removesuffix("```").strip())
    except (ValueError, RecursionError):
        return False
    return True


def _title(text: str) -> bool:
    return any(title.lstrip("<").rstrip(">").strip() for title in re.findall(r"<<[^\n]+>>", text))


def _two_responses(text: str) -> bool:
    """Two different texts around `******`; an empty part is allowed at either end only."""
    pieces = text.split("******")
    full = [piece.strip() for piece in pieces if piece.strip()]
    return all(piece.strip() for piece in pieces[1:-1]) and len(full) == 2 and full[0] != full[1]


def _repeat_prompt(text: str, prompt_to_repeat: str) -> bool:
    return text.strip().lower().startswith(prompt_to_repeat.strip().lower())


def _ends(text: str, end_phrase: str) -> bool:
    return text.strip().strip('"').lower().endswith(end_phrase.strip().lower())


def _capital_words(text: str, capital_frequency: int, capital_relation: str) -> bool:
    count = sum(word.isupper() for word in re.findall(r"\w(?:[\w.-]*\w)?", text))
    return _compares(count, capital_relation, capital_frequency)


def _quotation(text: str) -> bool:
    text = text.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'


CHECKERS: Mapping[str, Callable[..., bool]] = MappingProxyType(
    {
        "keywords:existence": _keywords,
        "keywords:frequency": _keyword_frequency,
        "keywords:forbidden_words": _forbidden_words,
        "keywords:letter_frequency": _letter_frequency,
        "length_constraints:number_sentences": _number_sentences,
        "length_constraints:number_paragraphs": _number_paragraphs,
        "length_constraints:number_words": _number_words,
        "length_constraints:nth_paragraph_first_word": _nth_paragraph_first_word,
        "detectable_content:number_placeholders": _number_placeholders,
        "detectable_content:postscript": _postscript,
        "detectable_format:number_bullet_lists": _number_bullets,
        "detectable_format:constrained_response": _constrained,
        "detectable_format:number_highlighted_sections": _highlights,
        "detectable_format:multiple_sections": _sections,
        "detectable_format:json_format": _json,
        "detectable_format:title": _title,
        "combination:two_responses": _two_responses,
        "combination:repeat_prompt": _repeat_prompt,
        "startend:end_checker": _ends,
        "startend:quotation": _quotation,
        "change_case:capital_word_frequency": _capital_words,
        "change_case:english_capital": str.isupper,
        "change_case:english_lowercase": str.islower,
        "punctuation:no_comma": lambda text: "," not in text,
    }
)


def follows(text: str, instruction: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a text follows an instruction; an empty text follows none.

    Raises: ValueError for an unknown instruction, or arguments that its checker does not take.
    """
    if instruction not in CHECKERS:
        raise ValueError(f"instruction is {instruction!r}; the checkers are: {', '.join(CHECKERS)}")
    try:
        return bool(text.strip()) and CHECKERS[instruction](text, **arguments)
    except TypeError as error:
        raise ValueError(f"instruction {instruction} has the arguments {dict(arguments)}: {error}") from error
