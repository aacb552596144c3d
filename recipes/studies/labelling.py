"""What a run of the lab says documents are, by likelihood (docs/recipes/label_with_a_model.md)."""

from post_training.labels.spec import LabelsConfig
from post_training.synthetic.spec import Teacher
from recipes.label_prompts import likelihood_prompt
from recipes.records.labels import DocumentLabels
from recipes.smoke import ONLINE_SOURCES
from recipes.studies.default import tiny
from recipes.study import Study


def study() -> Study:
    return Study("Do labels of a small model of ours say anything about a document?", labels=(kinds_by_tiny,))


def kinds_by_tiny() -> DocumentLabels:
    """The kind of each document by the likeliest word behind it. What it is worth: docs/log.md, 2026-11-27."""
    question = likelihood_prompt("Is this document prose, code or mathematics?")
    config = LabelsConfig(
        "kinds_by_tiny",
        Teacher("tiny", "http://127.0.0.1:8802"),
        question,
        answers=("prose", "code", "mathematics"),
        reading="likelihood",
        without_prior=True,
        max_documents=300,
        max_chars=300,
    )
    return DocumentLabels(config, ONLINE_SOURCES, tiny())
