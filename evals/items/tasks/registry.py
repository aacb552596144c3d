"""The table of all benchmarks that have a record."""

from collections.abc import Mapping
from types import MappingProxyType

from evals.items.rendering import styles
from evals.items.task import Task
from evals.items.tasks.arc import ARC_CHALLENGE, ARC_EASY
from evals.items.tasks.boolq import BOOLQ
from evals.items.tasks.copa import COPA
from evals.items.tasks.csqa import CSQA
from evals.items.tasks.gsm8k import GSM8K
from evals.items.tasks.hellaswag import HELLASWAG
from evals.items.tasks.humaneval import HUMANEVAL
from evals.items.tasks.ifeval import IFEVAL
from evals.items.tasks.lambada import LAMBADA
from evals.items.tasks.math import MATH
from evals.items.tasks.mbpp import MBPP
from evals.items.tasks.mmlu import MMLU
from evals.items.tasks.openbookqa import OPENBOOKQA
from evals.items.tasks.piqa import PIQA
from evals.items.tasks.winogrande import WINOGRANDE

_ALL = (
    ARC_CHALLENGE,
    ARC_EASY,
    BOOLQ,
    COPA,
    CSQA,
    GSM8K,
    HELLASWAG,
    HUMANEVAL,
    IFEVAL,
    LAMBADA,
    MATH,
    MBPP,
    MMLU,
    OPENBOOKQA,
    PIQA,
    WINOGRANDE,
)
TASKS: Mapping[str, Task] = MappingProxyType({task.name: task for task in _ALL})


def task_named(name: str) -> Task:
    """Return the record of a benchmark. A name without a record is a task of plain questions."""
    return TASKS.get(name) or Task(name, styles())
