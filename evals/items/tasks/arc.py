"""ARC (Clark et al. 2018, arXiv:1803.05457): science questions of school exams, in an easy and a hard set."""

from evals.items.rendering import styles
from evals.items.task import Task

ARC_EASY = Task("arc_easy", styles())
ARC_CHALLENGE = Task("arc_challenge", styles())
