"""One prompt of an environment, its split, and the verdict on a completion."""

import hashlib
from dataclasses import dataclass, field
from math import isfinite
from typing import Literal

type Split = Literal["train", "held_out"]
type Outcome = Literal["right", "wrong", "failed"]
"""`failed`: the verifier gave no verdict, so the completion has no reward and is not trained on."""


@dataclass(frozen=True)
class Prompt:
    """A prompt. `task` is JSON text with what the verifier needs."""

    prompt_id: str
    split: Split
    text: str
    answer: str
    """A right completion; empty if none is known."""
    task: str = ""


@dataclass(frozen=True)
class Verdict:
    """The judgement of one completion."""

    outcome: Outcome
    components: dict[str, float] = field(default_factory=dict)
    """Parts of the reward by name; their sum is the reward."""
    detail: str = ""

    def __post_init__(self) -> None:
        if self.outcome not in ("right", "wrong", "failed"):
            raise ValueError(f"verdict.outcome is {self.outcome!r}; right, wrong and failed are allowed")
        if self.outcome == "failed" and self.components:
            raise ValueError(f"verdict.components is {self.components}; a failed verdict has no reward, so it must be empty")
        for name, value in self.components.items():
            if not isfinite(value):
                raise ValueError(f"component {name!r} of the reward is {value}; it must be finite")

    @property
    def reward(self) -> float | None:
        """The sum of the components; None for a failed verdict."""
        return None if self.outcome == "failed" else sum(self.components.values())


def graded(right: bool, detail: str = "") -> Verdict:
    """Return the verdict of an exact verifier: the reward 1 or 0."""
    return Verdict("right" if right else "wrong", {"right": float(right)}, detail)


def split_of(prompt_id: str, held_out_share: float) -> Split:
    """Return the split of a prompt, by the hash of its id. So additional prompts never move a prompt to the other split."""
    place = int.from_bytes(hashlib.blake2b(prompt_id.encode(), digest_size=8).digest()) / 2**64
    return "held_out" if place < held_out_share else "train"


def check_share(where: str, share: float) -> None:
    """Check the share of held-out prompts. Raises: ValueError if it is not inside (0, 1)."""
    if not 0 < share < 1:
        raise ValueError(f"{where}.held_out_share is {share}; it must be inside (0, 1)")
