"""Takedowns on real stores: holders have the document's bytes, steps had its tokens in their batch."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples
from tiny import tiny_model

from evals.audit.takedown import Selection, TakedownScope, find_holders
from evals.audit.takedown_plan import missing_features, plan_takedown, training_flops
from lineage.artifact.manifest import MANIFEST_NAME, sealed
from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Artifact, Store
from lineage.config import to_jsonable
from lineage.graph.edges import lineage_tables
from lineage.order.batches import BatchPhase, BatchSchedule
from lineage.order.chosen import CHOSEN_MIXTURE
from lineage.order.mixture import MIXTURE, MixtureConfig, Phase, freeze_mixture
from lineage.order.order import DataOrder
from lineage.order.token_shards import tokens_extra, write_token_shard
from lineage.storage.digests import text_digest
from lineage.writing.write import writing

SEQ_LEN = 8
BATCHES = BatchSchedule((BatchPhase(0, 2), BatchPhase(5, 4)))
SAVED = (4, 8, 12)
MODEL = tiny_model(hidden_dim=8, intermediate_dim=16, num_layers=1, num_heads=2, num_kv_heads=1, max_seq_len=SEQ_LEN)


@dataclass(frozen=True)
class Component:
    """One source: the length in tokens of each document, and which of them the corpus dropped or held out."""

    name: str
    lengths: tuple[int, ...]
    dropped: frozenset[int] = frozenset()
    heldout: frozenset[int] = frozenset()
    licence: str = "CC0"
    shared: int = 0
    """Its first documents are, word for word, those of every other source."""

    def ids(self) -> list[str]:
        return [text_digest(f"{'shared' if i < self.shared else self.name} {i}") for i in range(len(self.lengths))]

    def trained(self) -> list[int]:
        return [i for i in range(len(self.lengths)) if i not in self.dropped | self.heldout]


@dataclass(frozen=True)
class World:
    """A small lab: every component's artifacts, one mixture of all, three checkpoints of one run."""

    store: Store
    components: tuple[Component, ...]
    checkpoints: tuple[Artifact, ...]
    order: DataOrder
    before: int = 0
    """Sequences of the order that the run does not read: another one did."""

    def scope(self, **selection: object) -> TakedownScope:
        return find_holders(self.store, lineage_tables(self.store), Selection(**selection))  # pyrefly: ignore


def write(
    store: Store, stage: str, key: str, name: str, files: dict[str, list[str]], extra: dict, **inputs: Artifact
) -> Artifact:
    refs = tuple(artifact.ref(label) for label, artifact in inputs.items())
    with writing(store, ArtifactSpec((key,), name, stage, "1", {"source": name}, refs)) as out:
        for path, ids in files.items():
            (out.folder / path).parent.mkdir(parents=True, exist_ok=True)
            pl.DataFrame({"id": sorted(ids)}, schema={"id": pl.String}).write_parquet(out.folder / path)
        out.extra.update(extra)
    return out.artifact


def cache_of(store: Store, component: Component) -> Artifact:
    """Raw, normalized, corpus and token cache of a component; every document's tokens are its own number."""
    ids, name = component.ids(), component.name
    source = {"source": {"name": name, "licence": component.licence}}
    raw = write(store, "datakit.raw", "raw", name, {"files/x.parquet": ids[:1]}, source)
    normalized = write(store, "datakit.normalize", "normalized", name, {"documents/part-0.parquet": ids}, {}, raw=raw)
    train = component.trained()
    splits = {"train/part-0.parquet": [ids[i] for i in train], "heldout/part-0.parquet": [ids[i] for i in component.heldout]}
    corpus = write(store, "datakit.corpus", "corpus", name, splits, {}, normalized=normalized)
    spec = ArtifactSpec(("cache",), name, "datakit.token_cache", "1", {}, (corpus.ref("corpus"),))
    with writing(store, spec) as out:
        documents = [(ids[i], np.full(component.lengths[i], i)) for i in sorted(train, key=lambda i: ids[i])]
        shards = [write_token_shard(out.folder, f"s{s}", documents[s::2], "uint16") for s in range(2)]
        out.facts["tokens"] = tokens_extra(name, "uint16", 64, "tok", None, None, shards)
    return out.artifact


def world(
    root: Path, components: tuple[Component, ...], phases: tuple[Phase, ...], before: int = 0, *, is_chosen: bool = False
) -> World:
    """`is_chosen`: the weights of the mixture are in an artifact, which is its last input."""
    store = Store(str(root))
    caches = tuple(cache_of(store, component) for component in components)
    config = MixtureConfig("m", phases, seed=3, block_size=6)
    refs = tuple(cache.ref(f"caches.{i}") for i, cache in enumerate(caches))
    if is_chosen:
        refs += (write(store, "science.proposal", "weights", "m", {}, {}).ref("weights"),)
    stage = CHOSEN_MIXTURE if is_chosen else MIXTURE
    with writing(store, ArtifactSpec(("mixture",), None, stage.name, "1", to_jsonable(config), refs)) as out:
        freeze_mixture(out, config, caches)
    run = {"name": "r", "model": to_jsonable(MODEL), "seq_len": SEQ_LEN, "batch_size": BATCHES.to_record()}
    saved = []
    for step in SAVED:
        ref = out.artifact.ref("mixture")
        spec = ArtifactSpec(("checkpoint",), f"step-{step}", "trainer.checkpoint", "2", {"run": run, "step": step}, (ref,))
        with writing(store, spec) as checkpoint:
            (checkpoint.folder / "weights").write_bytes(bytes(step))
            checkpoint.extra["checkpoint"] = {"batch_size": BATCHES.to_record(), "first_sequence": before}
        saved.append(checkpoint.artifact)
    return World(store, components, tuple(saved), DataOrder.open(out.artifact, SEQ_LEN), before)


def scanned(lab: World, documents: set[str], num_steps: int) -> set[int]:
    """Steps whose batch holds a token of one of the documents, by reading every batch forward."""
    steps = set()
    for index, step in enumerate((s for s in range(num_steps) for _ in range(BATCHES.size(s))), start=lab.before):
        component, sequence = lab.order.sequence_at(index)
        cache = lab.order.caches[lab.order.names.index(component)]
        between = cache.documents_between(sequence * SEQ_LEN, (sequence + 1) * SEQ_LEN)
        if documents & {document for document, _, _ in between}:
            steps.add(step)
    return steps


@st.composite
def components(draw: st.DrawFn, name: str) -> Component:
    lengths = tuple(draw(st.lists(st.integers(1, 40), min_size=2, max_size=7)))
    away = draw(st.sets(st.integers(0, len(lengths) - 2), max_size=2))
    heldout = frozenset(i for i in away if draw(st.booleans()))
    lengths = (*lengths[:-1], lengths[-1] + SEQ_LEN)  # at least one sequence of each component
    return Component(name, lengths, frozenset(away) - heldout, heldout, shared=draw(st.integers(0, 2)))


PHASES = st.sampled_from(
    [
        (Phase(0, {"a": 1.0, "b": 1.0}),),
        (Phase(0, {"a": 1.0}), Phase(12, {"a": 0.1, "b": 1.0})),
        (Phase(0, {"b": 1.0}), Phase(24, {"a": 1.0})),
    ]
)


@given(components("a"), components("b"), PHASES, st.sampled_from([0, 7]), st.data())
def test_holders_and_steps_are_those_of_reading_everything(
    tmp_path_factory: pytest.TempPathFactory,
    a: Component,
    b: Component,
    phases: tuple[Phase, ...],
    before: int,
    data: st.DataObject,
) -> None:
    lab = world(tmp_path_factory.mktemp("lab"), (a, b), phases, before)
    chosen = data.draw(st.sets(st.sampled_from([*a.ids(), *b.ids()]), min_size=1, max_size=3))
    scope = lab.scope(documents=tuple(sorted(chosen)))
    counts = {
        (h.role, h.artifact.spec.partition): h.num_selected
        for h in scope.holders
        if h.role in ("normalized", "corpus", "cache")
    }
    wanted = {}
    for component in (a, b):
        ids = component.ids()
        here = {
            "normalized": chosen & set(ids),
            "corpus": chosen & {ids[i] for i in range(len(ids)) if i not in component.dropped},
            "cache": chosen & {ids[i] for i in component.trained()},
        }
        wanted |= {(role, component.name): len(held) for role, held in here.items() if held}
    assert counts == wanted
    in_caches = any(role == "cache" for role, _ in wanted)
    assert [h.role for h in scope.holders].count("mixture") == int(in_caches)
    steps = {h.artifact.spec.config["step"]: set(h.steps) for h in scope.holders if h.role == "checkpoint"}
    assert steps == ({step: scanned(lab, chosen, step) for step in SAVED} if in_caches else {})
    check_plans(lab, scope, chosen)


def check_plans(lab: World, scope: TakedownScope, chosen: set[str]) -> None:
    """Every plan starts clean, as late as it can, at the cost that the steps have."""
    plans = plan_takedown(scope)
    per_sequence = MODEL.training_flops_per_token(SEQ_LEN) * SEQ_LEN
    flops = []
    for holder in (h for h in scope.holders if h.role == "checkpoint"):
        last = holder.artifact.spec.config["step"]
        step = plans.each[holder.artifact.spec.address].steps[-1]
        seen = scanned(lab, chosen, last)
        if not seen:
            assert step.action == "keep"
        elif holder.is_whole:
            assert step.action == "delete"
        else:
            start = max((s for s in SAVED if s <= min(seen)), default=0)
            assert (step.action, step.first_step) == ("train", start)
            assert step.flops == pytest.approx(sum(BATCHES.size(s) for s in range(start, last)) * per_sequence)
            assert not scanned(lab, chosen, start)
            flops.append(step.flops)
    assert plans.whole.flops == pytest.approx(max(flops, default=0.0))
    addresses = [step.address for step in plans.whole.steps]
    assert sorted(set(addresses)) == sorted(addresses) == sorted(h.artifact.spec.address for h in scope.holders)


A = Component("a", (20, 30, 12), licence="PSF-2.0")
B = Component("b", (25, 9, 31, 4), licence="public domain", shared=1)
BOTH = (Phase(0, {"a": 1.0, "b": 1.0}),)


def test_a_mixture_whose_weights_were_chosen_is_a_holder_too(tmp_path: Path) -> None:
    plans = []
    for is_chosen in (False, True):
        lab = world(tmp_path / str(is_chosen), (A, B), BOTH, is_chosen=is_chosen)
        plan = plan_takedown(lab.scope(documents=tuple(A.ids()[:1]))).whole
        plans.append(([(lab.store.open(step.address).name, step.action, step.first_step) for step in plan.steps], plan))
    assert plans[0][0] == plans[1][0] and ("mixture", "rebuild", 0) in plans[1][0]
    assert missing_features(plans[0][1]) == missing_features(plans[1][1])


@given(PHASES, st.sampled_from([0, 7]))
@settings(max_examples=examples(4))
def test_a_source_is_all_of_its_documents(
    tmp_path_factory: pytest.TempPathFactory, phases: tuple[Phase, ...], before: int
) -> None:
    """The component's steps by one pass over the order are those of asking for every document of it."""
    lab = world(tmp_path_factory.mktemp("lab"), (A, B), phases, before)
    scope = lab.scope(source="b")
    assert {(h.role, h.artifact.spec.partition) for h in scope.holders if h.role not in ("mixture", "checkpoint")} == {
        (role, "b") for role in ("raw", "normalized", "corpus", "cache")
    }
    for holder in (h for h in scope.holders if h.role == "checkpoint"):
        assert set(holder.steps) == scanned(lab, set(B.ids()), holder.artifact.spec.config["step"])


def test_a_run_that_started_from_one_that_read_it_is_trained_again_too(tmp_path: Path) -> None:
    """Its own mixture holds none of the document; what it started from had read it, or had not."""
    many = Component("b", (9,) * 12)
    lab = world(tmp_path, (A, many), BOTH)
    document = next(d for d in many.ids() if scanned(lab, {d}, 8) and not scanned(lab, {d}, 4))
    cache = next(lab.store.artifacts("cache", "a"))
    config = MixtureConfig("alone", (Phase(0, {"a": 1.0}),), seed=4, block_size=6)
    with writing(
        lab.store, ArtifactSpec(("alone",), None, MIXTURE.name, "1", to_jsonable(config), (cache.ref("caches.0"),))
    ) as out:
        freeze_mixture(out, config, (cache,))
    run = {"name": "on", "model": to_jsonable(MODEL), "seq_len": SEQ_LEN, "batch_size": BATCHES.to_record()}
    started = {}
    for start in lab.checkpoints[:2]:
        refs = (out.artifact.ref("mixture"), start.ref("start"))
        partition = f"from-{start.spec.partition}"
        spec = ArtifactSpec(("on",), partition, "trainer.checkpoint", "2", {"run": run, "step": 4}, refs)
        with writing(lab.store, spec) as checkpoint:
            (checkpoint.folder / "weights").write_bytes(b"")
            checkpoint.extra["checkpoint"] = {"batch_size": BATCHES.to_record()}
        started[partition] = checkpoint.artifact
    for checkpoint in started.values():
        commit_clock(checkpoint, "2001-01-01T00:00:00+00:00")  # of the machine that wrote it: years behind
    scope = lab.scope(documents=(document,))
    dirty = started["from-step-8"].spec.address
    inherited = {h.artifact.spec.address: h.inherited for h in scope.holders if h.inherited is not None}
    assert inherited == {dirty: lab.checkpoints[1].spec.address}
    assert started["from-step-4"].spec.address not in {h.artifact.spec.address for h in scope.holders}
    steps = plan_takedown(scope).each[dirty].steps
    assert [(s.action, s.address) for s in steps][-2:] == [("train", lab.checkpoints[1].spec.address), ("train", dirty)]
    assert steps[-1].start == f"step 0, from {lab.checkpoints[1].spec.address} made clean"


def commit_clock(artifact: Artifact, created: str) -> None:
    """Change when a manifest says that it was written, which is part of no identity."""
    where = f"{artifact.spec.address}/{MANIFEST_NAME}"
    record = json.loads(artifact.store.storage.read_text(where) or "") | {"created": created}
    del record["seal"]
    artifact.store.storage.replace(where, sealed(record).encode())


def test_what_was_published_of_a_run_that_read_it_is_withdrawn_and_made_again(tmp_path: Path) -> None:
    lab = world(tmp_path, (A, B), BOTH)
    exports = []
    for checkpoint in lab.checkpoints:
        spec = ArtifactSpec(("hf",), checkpoint.spec.partition, "trainer.hf_model", "1", {}, (checkpoint.ref("checkpoint"),))
        with writing(lab.store, spec) as out:
            (out.folder / "model.safetensors").write_bytes(b"w")
        exports.append(out.artifact.spec.address)
    document = A.ids()[A.trained()[0]]
    scope = lab.scope(documents=(document,))
    held = {h.artifact.spec.address: h for h in scope.holders}
    read = [bool(scanned(lab, {document}, step)) for step in SAVED]
    assert any(read) and [address in held for address in exports] == read
    last = exports[-1]
    assert held[last].steps == held[lab.checkpoints[-1].spec.address].steps
    plan = plan_takedown(scope).each[last].steps
    assert [step.action for step in plan[-2:]] == ["train", "rebuild"] and plan[-1].address == last
    assert "withdraw" in plan[-1].start


def test_a_source_that_goes_whole_is_deleted_and_the_mixture_made_without_it(tmp_path: Path) -> None:
    lab = world(tmp_path, (A, B), BOTH)
    plan = plan_takedown(lab.scope(source="b")).whole
    actions = {(step.stage, step.action) for step in plan.steps}
    deleted = {("datakit.raw", "delete"), ("datakit.normalize", "delete"), ("datakit.corpus", "delete")}
    assert actions == deleted | {
        ("datakit.token_cache", "delete"),
        ("lineage.mixture", "rebuild"),
        ("trainer.checkpoint", "train"),
    }
    mixture = next(step for step in plan.steps if step.stage == "lineage.mixture")
    assert mixture.start == "its caches, without b"
    assert missing_features(plan) == []


def test_a_licence_is_an_expression_and_one_that_does_not_tell_is_unknown(tmp_path: Path) -> None:
    """`PSF` in the middle of a text is not a licence. A licence in free text is neither found nor ruled out."""
    lab = world(tmp_path, (A, B), BOTH)
    by_licence = lab.scope(licence="psf-2.0")
    assert {h.artifact.spec.partition for h in by_licence.holders if h.role == "cache"} == {"a"}
    assert {h.artifact.spec.partition for h in lab.scope(licence="MIT OR PSF-2.0").holders if h.role == "cache"} == {"a"}
    other = lab.scope(licence="MIT")
    assert other.holders == ()
    for scope in (by_licence, other):
        assert any("'public domain', which is no SPDX expression" in why for _, why in scope.unknown)
    with pytest.raises(ValueError, match="licence 'GPL' is no SPDX expression"):
        lab.scope(licence="GPL")


def test_the_same_text_in_two_sources_is_found_in_both(tmp_path: Path) -> None:
    lab = world(tmp_path, (replace(A, shared=1), B), BOTH)
    scope = lab.scope(documents=(A.ids()[0] if A.shared else B.ids()[0],))
    assert {h.artifact.spec.partition for h in scope.holders if h.role == "cache"} == {"a", "b"}
    assert next(h for h in scope.holders if h.role == "mixture").components == ("a", "b")
    assert missing_features(plan_takedown(scope).whole)[0].startswith("'rebuild' of a corpus")


def test_what_cannot_be_known_is_said(tmp_path: Path) -> None:
    """Without its raw artifact a normalized set has no licence; without a cache a checkpoint has no steps."""
    lab = world(tmp_path, (A, B), BOTH)
    by_key = {(a.spec.key[0], a.spec.partition): a for a in lab.store.artifacts()}
    lab.store.delete(by_key["raw", "a"])
    lab.store.delete(by_key["cache", "b"])
    scope = lab.scope(licence="PSF-2.0")
    reasons = " ".join(f"{address}: {why}" for address, why in scope.unknown)
    assert "normalized/a" in reasons and "raw that it was made from is gone" in reasons
    assert "mixture" in reasons and "its cache cache/b" in reasons
    document = lab.scope(documents=(A.ids()[0],))
    assert sum("data order cannot be opened" in why for _, why in document.unknown) == len(SAVED)
    assert {h.role for h in document.holders} == {"normalized", "corpus", "cache", "mixture"}


def test_a_selection_is_one_of_the_three(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="this names 2"):
        Selection(documents=("0" * 32,), source="a")
    with pytest.raises(ValueError, match="'xyz' is not 32"):
        Selection(documents=("xyz",))


def test_only_checkpoints_have_training_flops(tmp_path: Path) -> None:
    lab = world(tmp_path, (A, B), BOTH)
    ratio = training_flops(lab.checkpoints[1].manifest) / training_flops(lab.checkpoints[0].manifest)
    assert ratio == pytest.approx((5 * 2 + 3 * 4) / (4 * 2))
    mixture = next(a for a in lab.store.artifacts() if a.spec.stage == MIXTURE.name)
    with pytest.raises(ValueError, match=r"only trainer\.checkpoint"):
        training_flops(mixture.manifest)
