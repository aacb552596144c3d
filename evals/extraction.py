"""The answer in a generated text, or None where there is none: an unparsed answer is counted apart and is never a wrong one.

GSM8K: lm-eval's `#### 18`, OLMES's "So the answer is 18.", else the last number. MATH: Minerva's "The final answer is $x$.",
else the last \\boxed{}; two answers are equal when their normalized texts are (Lewkowycz et al. 2022). lm-eval asks sympy as
well, so its score can only be higher than ours.
"""

import re

_NUMBER = r"-?\$?\d[\d,]*(?:\.\d+)?"
_STATED = (re.compile(rf"####\s*({_NUMBER})"), re.compile(rf"[Tt]he answer is:?\s*({_NUMBER})"))
_ANY_NUMBER = re.compile(_NUMBER)
_FINAL = re.compile(r"[Ff]inal [Aa]nswer: The final answer is\s*(.*?)\.?\s*I hope it is correct", re.DOTALL)
_CODE_BLOCK = re.compile(r"```(?:python)?\n(.*?)(?:```|\Z)", re.DOTALL)


def extract_answer(task: str, text: str) -> str | None:
    """The answer that a generated text gives to an item of a task, normalized; None where it gives none."""
    match task:
        case "gsm8k":
            return _number(text)
        case "math":
            found = _FINAL.search(text)
            stated = found[1] if found else last_boxed(text)
            return normalized_math(stated) if stated is not None and stated.strip() else None
        case "lambada":
            words = text.split()
            return words[0].strip(".,!?;:'\"“”’") or None if words else None
    stripped = text.strip()
    return stripped.splitlines()[0].strip() if stripped else None


def gold_form(task: str, answer: str) -> str:
    """The right answer, normalized as extracted ones are."""
    match task:
        case "gsm8k":
            return _number(answer) or answer
        case "math":
            return normalized_math(answer)
    return answer.strip()


def extract_program(prompt: str, text: str) -> str | None:
    """The program that a completion makes: a fenced block alone, else the prompt with the completion; None for no text."""
    if not text.strip():
        return None
    fenced = _CODE_BLOCK.search(text)
    return fenced[1] if fenced else prompt + text


def _number(text: str) -> str | None:
    stated = next((found[-1] for form in _STATED if (found := form.findall(text))), None)
    if stated is None:
        numbers = _ANY_NUMBER.findall(text)
        stated = numbers[-1] if numbers else None
    if stated is None:
        return None
    plain = stated.replace(",", "").replace("$", "")
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


def last_boxed(text: str) -> str | None:
    """What the last \\boxed{...} holds, braces matched; None where there is none or it never closes."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth, begin = 0, start + len("\\boxed{")
    for place in range(begin - 1, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[begin:place]
    return None


_UNITS = ("dollars", "cents", "degrees", "inches", "square", "hours", "minutes", "miles", "feet", "cm", "mm", "units")
_UNIT = re.compile(rf"(?<![A-Za-z\\])(?:{'|'.join(_UNITS)})(?![A-Za-z])(?:\^(?:[23]|\{{[23]\}}))?")
"""A unit that stands as a word, with its square or cube: `5cm^2` has one, `common` and `\\square` have none."""
_DELIMITER = re.compile(r"\\(?:left|right)(?![A-Za-z])")
_REMOVED = ("\\!", "\\,", "\\ ", "\\$", "$", "\\%", "%", "^\\circ", "^{\\circ}")


def normalized_math(answer: str) -> str:
    """A final answer without what does not change its meaning: units, spacing, delimiters, fraction shorthands."""
    text = answer.split("=")[-1] if answer.count("=") == 1 and len(answer.split("=")[0].strip()) <= 2 else answer
    text = text.replace("tfrac", "frac").replace("dfrac", "frac")
    text = re.sub(r"\\(?:text|mathrm|textbf|mbox)\{(.*?)\}", r"\1", text)
    text = _UNIT.sub("", _DELIMITER.sub("", text))
    for removed in _REMOVED:
        text = text.replace(removed, "")
    text = re.sub(r"\\frac(\d)(\d)", r"\\frac{\1}{\2}", text)
    text = re.sub(r"\\sqrt(\w)", r"\\sqrt{\1}", text)
    text = re.sub(r"(?<![\d,])(\d{1,3}(?:,\d{3})+)(?!\d)", lambda found: found[1].replace(",", ""), text)
    text = re.sub(r"\s+", "", text)
    return text.removeprefix("{").removesuffix("}") if re.fullmatch(r"\{[^{}]*\}", text) else text.rstrip(".")
