"""Record of labels: what a model is asked, about which sources, and the run whose checkpoint it is."""

from dataclasses import dataclass

from post_training.labels.spec import LabelsConfig
from recipes.records.run import Run


@dataclass(frozen=True)
class DocumentLabels:
    """Labels of documents of some sources by one model with one prompt."""

    config: LabelsConfig
    sources: tuple[str, ...]
    model: Run | None = None
    """The run whose last checkpoint the URL serves. None: a model that is known by its name and reported version alone."""

    def __hash__(self) -> int:
        """Hash the name: nodes are cached by labels."""
        return hash(self.name)

    @property
    def name(self) -> str:
        return self.config.name
