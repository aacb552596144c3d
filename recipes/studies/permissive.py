"""The default corpus over its permissively licensed sources only."""

from recipes.licences import permissive
from recipes.records.run import Run
from recipes.studies.default import tiny
from recipes.study import Study


def study() -> Study:
    return Study("What is left with permissive licences alone?", runs=(tiny_permissive,))


def tiny_permissive() -> Run:
    return tiny().narrowed(permissive())
