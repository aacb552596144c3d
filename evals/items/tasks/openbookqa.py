"""OpenBookQA (Mihaylov et al. 2018, arXiv:1809.02789): elementary science questions with four choices."""

from evals.items.rendering import bare_text, styles
from evals.items.task import Task

OPENBOOKQA = Task("openbookqa", styles(lm_eval=bare_text))
