"""Sums that the run on rewards solves itself, as text of a source (docs/recipes/make_synthetic_data.md)."""

from post_training.synthetic.spec import SynthesisConfig, Teacher
from recipes.records.synthetic import SyntheticSet
from recipes.rewards import ANSWER, addition, learner
from recipes.study import Study


def study() -> Study:
    return Study("What does a student learn from its teacher's own right answers?", synthetic=(addition_own,))


def addition_own() -> SyntheticSet:
    """Four completions of every sum by the run `addition_rloo`, those that the verifier accepts."""
    teacher = Teacher("addition_rloo", "http://127.0.0.1:8801")
    synthesis = SynthesisConfig("addition_own", teacher, samples=4, max_tokens=ANSWER, shards=2)
    return SyntheticSet(synthesis, addition(), teacher=learner("rloo"))
