"""Stores for tests of the site: manifests of every kind without data files, and a walk through a finished site."""

import datetime
import html.parser
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lineage.artifact.made_by import MadeBy
from lineage.artifact.manifest import FileEntry, Manifest, ResourceUse, content_version, to_json
from lineage.artifact.spec import ArtifactSpec, InputRef
from lineage.artifact.store import Artifact, Store
from operations.ledger.ledger import Ledger, open_ledger
from operations.site.build import Written, build_site
from recipes.prices import price_table

TODAY = datetime.date(2026, 11, 25)


def put(
    store: Store,
    name: str,
    stage: str = "datakit.normalize",
    *inputs: tuple[str, Artifact],
    config: Mapping[str, Any] | None = None,
    extra: Mapping[str, Any] | None = None,
    made_by: MadeBy | None = None,
    **texts: Any,
) -> Artifact:
    """Write the manifest of an artifact; `name` is `a/b/c` or `a/b/c:partition`. `texts` are further fields of it."""
    key, _, partition = name.partition(":")
    refs = tuple(InputRef(n, a.spec.key, a.spec.partition, a.data_version, a.spec.address) for n, a in inputs)
    spec = ArtifactSpec(tuple(key.split("/")), partition or None, stage, "1", config or {}, refs)
    files = (FileEntry("a.parquet", 10, 1, spec.version),)
    fields: dict[str, Any] = {
        "data_folder": "data-1",
        "statistics": {"rows_in": 2, "rows_out": 1},
        "code_fingerprint": "f",
        "created": "2026-11-24T10:00:00+00:00",
        "run_id": "",
        "packages": {},
    } | texts
    manifest = Manifest(
        spec=spec,
        data_version=content_version(files),
        files=files,
        extra=extra or {},
        resources=ResourceUse(1.0, 1.0, 1),
        made_by=made_by or MadeBy("ada", "box-17", "c0ffee"),
        **fields,
    )
    store.storage.create(f"{spec.address}/manifest.json", to_json(manifest))
    return Artifact(store, manifest)


def put_lineage(store: Store, index: int = 0, licence: Any = "MIT", **texts: Any) -> dict[str, Artifact]:
    """Write one artifact of every kind that has sections of its own; names end in `index`."""
    tag = f"x{index}"
    source = {"name": f"src{tag}", "licence": licence, "domain": "prose", "terms": "", "loader": {"globs": ["secretglob"]}}
    raw = put(store, f"datakit/raw:{tag}", "datakit.raw", extra={"source": source}, **texts)
    normal = put(store, f"datakit/normalized:{tag}", "datakit.normalize", ("raw", raw), **texts)
    corpus = put(store, f"corpus/default:{tag}", "datakit.corpus", ("normalized", normal), **texts)
    tasks = {"gsm8k": 3}
    suite = put(store, f"eval_suite/{tag}", "evals.suite", extra={"suite": {"tasks": tasks, "about": {}}}, **texts)
    run = {"run": {"name": tag, "num_steps": 9, "model": {"hidden_dim": 8}}, "step": 9}
    facts = {"checkpoint": {"step": 9, "tokens_seen": 90, "loss_nats": 3.25, "parameters": 7}}
    ckpt = put(store, f"runs/{tag}/checkpoint", "trainer.checkpoint", ("corpus", corpus), config=run, extra=facts, **texts)
    scores = [{"task": "gsm8k", "metric": "bpb", "value": 1.125, "low": 1.0, "high": 1.25, "n": 3}]
    inputs = (("checkpoint", ckpt), ("suites.0", suite))
    result = put(store, f"runs/{tag}/eval_result", "evals.result", *inputs, extra={"scores": scores}, **texts)
    verdict = {"audit": {"verdict": "clean", "step": 9, "by_task": {"gsm8k": {"items": 3}}}}
    audit = put(store, f"runs/{tag}/contamination_audit", "evals.audit", *inputs, extra=verdict, **texts)
    trial = put(store, f"sweeps/s{tag}/trial:t1", "trainer.trial", ("corpus", corpus), config=run, extra=facts, **texts)
    frozen = {
        "forecast": {
            "target": {"name": tag},
            "metric": {"task": "gsm8k", "name": "bpb"},
            "point": 1.5,
            "intervals": {"0.9": [1, 2]},
        }
    }
    forecast = put(store, f"forecasts/{tag}", "science.forecast", ("trials.0", trial), extra=frozen, **texts)
    named = ("raw", "normalized", "corpus", "suite", "checkpoint", "result", "audit", "trial", "forecast")
    return dict(zip(named, (raw, normal, corpus, suite, ckpt, result, audit, trial, forecast), strict=True))


def ledger_of(*stores: Store) -> Ledger:
    return open_ledger(stores, price_table(), TODAY)


def build(folder: Path, *stores: Store, campaigns: Any = None) -> Written:
    return build_site(str(folder), stores, ledger_of(*stores), campaigns)


def page_of(folder: Path, title: str) -> str:
    """The text of the one page with a title."""
    found = [text for text in pages(folder).values() if f"<h1>{title}</h1>" in text]
    assert len(found) == 1, (title, len(found))
    return found[0]


def pages(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in sorted(folder.rglob("*.html"))}


def all_files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


class Walk(html.parser.HTMLParser):
    """The tags of a page with their attributes, and the texts inside tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def links(self) -> list[str]:
        return [a[name] for _, a in self.tags for name in ("href", "src") if name in a and not a[name].startswith("#")]


def contrast(one: str, other: str) -> float:
    """The contrast of two colours `#rrggbb` or `#rgb` (WCAG 2.2, 1.4.3)."""

    def light(colour: str) -> float:
        digits = colour[1:] if len(colour) == 7 else "".join(2 * c for c in colour[1:])
        parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
        red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def colours(css: str) -> list[dict[str, str]]:
    """The colours by name of each `:root` of a style sheet: light, then dark over light."""
    blocks = [
        dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{3,6})", block)) for block in re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    ]
    return [blocks[0], blocks[0] | blocks[1]]
