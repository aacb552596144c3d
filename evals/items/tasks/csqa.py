"""CommonsenseQA (Talmor et al. 2019, arXiv:1811.00937): questions about everyday knowledge with five choices."""

from evals.items.rendering import lettered, question_head, styles
from evals.items.task import Task

CSQA = Task("csqa", styles(lm_eval=lettered(question_head, indent="")))
