"""Labels of documents by a model (docs/recipes/label_with_a_model.md): their node."""

from functools import cache

from lineage.build.nodes import Node
from post_training.labels.stage import LABELS
from recipes.data import normalized
from recipes.lab import declarations
from recipes.records.labels import DocumentLabels
from recipes.records.placement import CANONICAL, Placement
from recipes.runs import checkpoint


@cache
def labels(of: DocumentLabels, source: str, at: Placement = CANONICAL) -> Node:
    """The model's label of the first documents of a source. Raises: ValueError for a source that the record does not name."""
    if source not in of.sources:
        raise ValueError(f"labels {of.name} are of the sources {', '.join(of.sources)}, not of {source}; add it to the record")
    inputs = {"normalized": normalized(source, at)}
    if of.model is not None:
        inputs["model"] = checkpoint(of.model, of.model.spec.num_steps)
    return Node(*at.of_source("labels", of.name, source=source), LABELS, of.config, inputs)


def declared_labels(name: str) -> DocumentLabels:
    """Return the declared labels of a name. Raises: ValueError that lists the names."""
    for of in declarations().labels:
        if of.name == name:
            return of
    names = ", ".join(of.name for of in declarations().labels) or "none"
    raise ValueError(f"labels {name!r} are not declared; the declared labels are: {names}")
