"""Addition of two numbers of n digits with an exact verifier: `37+58=` asks for `095`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lineage.stage import Stage
from lineage.writing.writer import Writer
from post_training.environments.prompt import Prompt, Verdict, check_share, graded, split_of
from post_training.environments.table import write_prompts


@dataclass(frozen=True)
class Addition:
    """All pairs of numbers of `digits` digits, leading zeros included. The sum has one digit more."""

    digits: int = 2
    held_out_share: float = 0.1

    def __post_init__(self) -> None:
        if not 1 <= self.digits <= 3:
            raise ValueError(f"addition.digits is {self.digits}; 1 to 3 are allowed, because 4 would give 100,000,000 prompts")
        check_share("addition", self.held_out_share)


def prompts(config: Addition) -> Iterator[Prompt]:
    """Every pair, in the order of the numbers."""
    width, count = config.digits, 10**config.digits
    for left in range(count):
        for right in range(count):
            name = f"{left:0{width}d}+{right:0{width}d}"
            yield Prompt(name, split_of(name, config.held_out_share), f"{name}=", f"{left + right:0{width + 1}d}")


def judge(prompts: Sequence[Prompt], texts: Sequence[str]) -> list[Verdict]:
    """Judge completions. One is right if it is exactly the digits of the sum."""
    return [graded(text == prompt.answer, f"{prompt.text}{text}") for prompt, text in zip(prompts, texts, strict=True)]


def judge_by_value(prompts: Sequence[Prompt], texts: Sequence[str]) -> list[Verdict]:
    """Judge again: compute the sum from the prompt and compare numbers. This is the second verifier."""
    return [graded(_value(text) == _sum(prompt.text)) for prompt, text in zip(prompts, texts, strict=True)]


def _sum(question: str) -> int:
    left, right = question.removesuffix("=").split("+")
    return int(left) + int(right)


def _value(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def build(out: Writer, config: Addition) -> None:
    write_prompts(out, prompts(config))


ADDITION = Stage(
    "environments.addition", "1", build, description="Sums of two numbers with an exact verifier.", checks=("file_set",)
)
