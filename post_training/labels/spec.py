"""What a model is asked about documents, and how its answer is read. A frozen record that checks itself."""

from dataclasses import dataclass, field
from itertools import permutations
from typing import Literal

from post_training.synthetic.spec import Teacher
from trainer.spec.checks import require

DOCUMENT = "{document}"
GRADES = ("0", "1", "2", "3", "4", "5")


@dataclass(frozen=True)
class LabelsConfig:
    """Identity of the labels of one source: the model, the whole prompt, and the allowed answers."""

    name: str
    model: Teacher
    """Its `url` is no part of the identity."""

    prompt: str
    """What the model reads; the document takes the place of `{document}`. Nothing is added."""

    answers: tuple[str, ...] = GRADES
    """Grades, or the words of a closed list."""

    reading: Literal["stated", "likelihood"] = "stated"
    """`stated`: the model writes its answer as [[answer]]. `likelihood`: each answer is put behind the prompt and a space, and
    the likeliest is the label. The server must echo a prompt's log-probabilities (ours, vLLM and SGLang do)."""

    without_prior: bool = False
    """Divide the likelihood of an answer by the one that it has behind an empty document (Zhao et al. 2021, arXiv 2102.09690):
    a small model prefers an answer whatever it reads."""

    max_documents: int = 1_000
    """The first by id. Ids are hashes, so this is a random sample."""

    max_chars: int = 2_000
    """Characters of a document's start that the model reads."""

    max_tokens: int = 256
    """Tokens of a stated answer."""

    unit_documents: int = field(default=32, metadata={"identity": False})
    """Documents that are recorded together: at most so many are asked about again after a kill."""

    concurrency: int = field(default=16, metadata={"identity": False})
    patience_seconds: float = field(default=600.0, metadata={"identity": False})

    def __post_init__(self) -> None:
        for name in ("max_documents", "max_chars", "max_tokens", "unit_documents", "concurrency"):
            require(getattr(self, name) > 0, f"labels.{name}", getattr(self, name), "positive")
        require(self.prompt.count(DOCUMENT) == 1, "labels.prompt", self.prompt, f"a text that has {DOCUMENT} once")
        require(len(set(self.answers)) == len(self.answers) > 1, "labels.answers", self.answers, "two or more, each once")
        sound = all(answer == answer.strip() != "" and not set(answer) & set("[]") for answer in self.answers)
        require(sound, "labels.answers", self.answers, "words without brackets, and without space around them")
        require(self.reading in ("stated", "likelihood"), "labels.reading", self.reading, "stated or likelihood")
        if self.reading == "stated":
            require(self.model.form != "agent", "labels.model.form", self.model.form, "completion or chat")
            require("[[" in self.prompt, "labels.prompt", self.prompt, "a text that asks for the form [[answer]]")
            require(not self.without_prior, "labels.without_prior", self.without_prior, "False for stated answers")
            return
        require(self.model.form == "completion", "labels.model.form", self.model.form, "completion, for likelihoods")
        require(self.prompt == self.prompt.rstrip(), "labels.prompt", self.prompt, "a text without space at its end")
        prefixes = [pair for pair in permutations(self.answers, 2) if pair[1].startswith(pair[0])]
        require(not prefixes, "labels.answers", self.answers, "words of which none begins another: it would be the likelier")
