"""Instructions and texts on which our checkers of IFEval are compared with lm-eval's; no import of ours, so that lm-eval's own
environment can run it."""

import random

WORDS = (
    "the", "river", "bank", "holds", "Old", "stones", "AND", "a", "quiet", "NASA", "report", "on", "42", "trees", "it's",
    "blue", "Lake", "water", "says", "hello", "maybe", "YES",
)  # fmt: skip
PIECES = (
    "* a point", "- another point", "** bold start", "*marked*", "**strong words**", "* *", "[address]", "[name] and [date]",
    "***", "******", "P.S. call me", "p. s. later", "P.P.S more", "<<A title>>", "<< >>", "Section 1", "Section 2 begins",
    "SECTION 3", "My answer is yes.", "My answer is maybe.", '{"a": [1, 2]}', '```json\n{"b": null}\n```', "[1, 2",
    "Is there anything else I can help with?", '"quoted"', '"', "Tell me of rivers", "tell me of Rivers and more",
    "'Blue lake", "Blue, lake", "blue", "\n", "\n\n", "\n\n\n",
)  # fmt: skip
FIXED = {
    "detectable_format:constrained_response", "detectable_format:json_format", "detectable_format:title",
    "combination:two_responses", "startend:quotation", "punctuation:no_comma",
}  # fmt: skip
RELATIONS = ("less than", "at least")


def instructions() -> list[tuple[str, dict]]:
    """Every checker that lm-eval can run without its downloads, with several arguments each."""
    made: list[tuple[str, dict]] = [(name, {}) for name in sorted(FIXED)]
    for relation in RELATIONS:
        for bound in (1, 2, 4, 9):
            made += [
                ("keywords:frequency", {"keyword": "river", "frequency": bound, "relation": relation}),
                ("keywords:letter_frequency", {"letter": "e", "let_frequency": bound, "let_relation": relation}),
                ("length_constraints:number_words", {"num_words": bound * 4, "relation": relation}),
                ("change_case:capital_word_frequency", {"capital_frequency": bound, "capital_relation": relation}),
            ]
    for count in (1, 2, 3):
        made += [
            ("length_constraints:number_paragraphs", {"num_paragraphs": count}),
            ("detectable_content:number_placeholders", {"num_placeholders": count}),
            ("detectable_format:number_bullet_lists", {"num_bullets": count}),
            ("detectable_format:number_highlighted_sections", {"num_highlights": count}),
            ("detectable_format:multiple_sections", {"section_spliter": "Section", "num_sections": count}),
            (
                "length_constraints:nth_paragraph_first_word",
                {"num_paragraphs": count, "nth_paragraph": max(1, count - 1), "first_word": "blue"},
            ),
        ]
    made += [("detectable_content:postscript", {"postscript_marker": marker}) for marker in ("P.S.", "P.P.S")]
    made += [
        ("keywords:existence", {"keywords": ["river", "stones"]}),
        ("keywords:forbidden_words", {"forbidden_words": ["lake"]}),
    ]
    made += [("combination:repeat_prompt", {"prompt_to_repeat": "Tell me of rivers"})]
    made += [("startend:end_checker", {"end_phrase": "Is there anything else I can help with?"})]
    return made


def texts(number: int = 300) -> list[str]:
    """Texts of words and of pieces that the checkers look for."""
    rng, made = random.Random(0), []
    for _ in range(number):
        parts = []
        for _ in range(rng.randint(1, 9)):
            parts.append(rng.choice(PIECES) if rng.random() < 0.5 else " ".join(rng.choices(WORDS, k=rng.randint(1, 7))))
            parts.append(rng.choice((" ", "\n", ". ", ", ", "\n\n")))
        text = "".join(parts[:-1])
        made.append(rng.choice((text, text, text, text.upper(), f'"{text}"', f" {text} ")))
    return made
