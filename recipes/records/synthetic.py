"""Record of a synthetic set: the prompts, the teacher and its checkpoint, how it samples, and what is accepted."""

from dataclasses import dataclass, field

from lineage.build.nodes import Node
from post_training.synthetic.spec import AcceptConfig, SynthesisConfig
from recipes.records.reward_run import RewardRun
from recipes.records.run import Run


@dataclass(frozen=True)
class SyntheticSet:
    """Completions of a teacher, and those that are accepted."""

    synthesis: SynthesisConfig
    environment: Node
    accept: AcceptConfig = field(default_factory=AcceptConfig)
    teacher: Run | RewardRun | None = None
    """The run whose last checkpoint the URL serves. None: a teacher that is known by its URL alone, whose training nobody can
    audit."""

    def __hash__(self) -> int:
        """Hash the name: nodes are cached by set."""
        return hash(self.name)

    @property
    def name(self) -> str:
        return self.synthesis.name
