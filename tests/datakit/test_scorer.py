"""The trained scorer: it separates its seeds and reports its uncertainty; scores select the same corpus on any worker."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from inputs import Texts, documents, duplicates, file_bytes, made, marks, quality, random_texts

from datakit.corpus.build import CORPUS, CorpusConfig
from datakit.quality.calibration import Platt, auc, expected_calibration_error, fitted_platt, reliability, sigmoid
from datakit.quality.rule_sets import Rule, RuleSet
from datakit.quality.rules import QUALITY_RULES, QualityRulesConfig
from datakit.quality.score_cutoff import SCORE_CUTOFF, ScoreCutoffConfig
from datakit.quality.scorer import SCORER, ScorerConfig
from datakit.quality.scorer_model import Model, hashed_part, read_scorer, weights_of
from datakit.quality.scores import SCORES, ScoresConfig
from datakit.quality.seeds import Seed
from datakit.text.text_features import FeatureConfig, hashed, windows
from lineage.artifact.store import Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.config import from_jsonable, to_jsonable
from lineage.shards.execution import Execution
from lineage.shards.failures import IncompleteError
from lineage.storage.digests import text_digest

GOOD = Texts("good", tuple(random_texts(150, 60, seed=1)))
MENU = ("home", "menu", "login", "cart", "share", "cookie", "search", "next", "reply", "tag")
_menus = [" ".join(np.random.default_rng(i).choice(MENU, 40)) for i in range(150)]
POOR = Texts("poor", tuple(f"{menu} {text[:60]}" for menu, text in zip(_menus, random_texts(150, 20, 2), strict=True)))
MIXED = Texts("mixed", (*random_texts(30, 60, seed=7), *(t[::-1] for t in GOOD.texts[:3]), *POOR.texts[:20]), part_bytes=4_000)
CONFIG = ScorerConfig("small", (Seed("good", "positive"), Seed("poor", "negative")), FeatureConfig(bits=12, window_chars=300))


def scorer(config=CONFIG):
    sources = {"good": GOOD, "poor": POOR}
    inputs = {
        "normalized": tuple(documents(sources[name]) for name in config.sources),
        "quality": tuple(quality(sources[name]) for name in config.sources),
    }
    return Node(("scorer", "small"), None, SCORER, config, inputs)


def scores(source):
    inputs = {"normalized": documents(source), "scorer": scorer()}
    return Node(("scores", "small"), source.source, SCORES, ScoresConfig(), inputs)


def corpus(source, config, **optional):
    inputs = {"normalized": documents(source), "contamination": marks(source), "duplicates": duplicates((source,)), **optional}
    if config.drop_low_quality:
        inputs["quality"] = quality(source)
    return Node(("corpus", "scored"), source.source, CORPUS, config, inputs)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("scorer")


def table(artifact):
    return pl.concat([pl.read_parquet(path) for path in artifact.files(".parquet", "scores/")])


def ids(artifact):
    paths = [path for path in artifact.files(".parquet") if path.parent.name in ("train", "heldout")]
    return {identity for path in paths for identity in pl.read_parquet(path)["id"]}


def test_it_ranks_held_out_seeds_and_says_how_sure_it_is(store):
    facts = made(store, scorer()).manifest.extra["scorer"]
    assert facts["auc"] == 1.0 and facts["documents"]["test"] > 10
    assert facts["expected_calibration_error"] < 0.1
    assert {row["feature"] for row in facts["top"]["negative"][:10]} & set(MENU)
    assert sum(row["documents"] for row in facts["reliability"]) == facts["documents"]["test"]


def test_training_and_scoring_give_the_same_bytes_anywhere(store, tmp_path):
    assert file_bytes(made(store, scorer())) == file_bytes(made(tmp_path, scorer()))
    for parent in scores(MIXED).parents():
        made(tmp_path, parent)
    two = build(Store(str(tmp_path)), scores(MIXED), execution=Execution(2)).artifact
    assert file_bytes(made(store, scores(MIXED))) == file_bytes(two)


def test_a_score_is_that_of_its_text_alone(store):
    """The table equals the scorer asked one document at a time."""
    model = Model.of(made(store, scorer()))
    one_by_one = {text_digest(text): model.probabilities([text]).round(6)[0] for text in MIXED.texts}
    assert dict(table(made(store, scores(MIXED))).iter_rows()) == one_by_one


def test_deciles_hold_every_document_and_samples_of_their_own(store):
    artifact = made(store, scores(MIXED))
    deciles, of = artifact.manifest.extra["scores"]["deciles"], dict(table(artifact).iter_rows())
    assert sum(row["documents"] for row in deciles) == len(of)
    assert all(row["low"] <= of[sample["id"]] <= row["high"] for row in deciles for sample in row["samples"])
    assert [row["low"] for row in deciles] == sorted(row["low"] for row in deciles)


def test_the_model_is_json_that_holds_what_was_learned(store):
    """One file, whose weights are those that score: a document of one word has the weight of its bucket as its logit."""
    artifact = made(store, scorer())
    (path,) = artifact.files()
    learned = read_scorer(path)
    assert (path.name, learned["format"], learned["backend"]) == ("scorer.json", "marin-lab/scorer/1", "hashed")
    assert list(learned["weights"]) == sorted(learned["weights"], key=int) and all(learned["weights"].values())
    platt = Platt(**learned["platt"])
    for word in MENU:
        (bucket,) = hashed([word], 12).indices
        wanted = platt.probability(np.array([np.float32(learned["weights"][str(bucket)])], np.float64))
        assert Model.of(artifact).probabilities([word]) == wanted
    assert artifact.manifest.extra["scorer"]["backend"] == "hashed"


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=64))
@example([2.0**-149, -0.0, 3.4028234663852886e38, 0.1, 1 / 3, -1.1754943508222875e-38])
def test_weights_come_back_from_json_bit_for_bit(values):
    weights = np.zeros(256, np.float32)
    weights[: len(values)] = values
    text = json.dumps(hashed_part(weights))
    assert weights_of(json.loads(text), 8).tobytes() == weights.tobytes()
    assert text == json.dumps(hashed_part(weights_of(json.loads(text), 8)))


def test_a_model_that_is_none_is_refused(tmp_path):
    (tmp_path / "scorer.json").write_text('{"format": "other"}')
    with pytest.raises(ValueError, match=r"has the format 'other', this checkout reads 'marin-lab/scorer/1'"):
        read_scorer(tmp_path / "scorer.json")
    with pytest.raises(ValueError, match="1 weights are not finite"):
        hashed_part(np.array([0, np.nan], np.float32))
    with pytest.raises(ValueError, match=r"buckets from 3 to 256; of 8 bits they are 0 to 255"):
        weights_of({"weights": {"3": 1.0, "256": 1.0}}, 8)


@pytest.mark.parametrize("over", ["source", "corpus"])
def test_a_corpus_keeps_the_best_fraction(store, over):
    sources, frac = (MIXED, GOOD), 0.8
    tables = [table(made(store, scores(s))).with_columns(source=pl.lit(s.source)) for s in sources]
    pool = pl.concat(tables) if over == "corpus" else tables[0]
    best = pool.sort(["score", "id"], descending=[True, False]).head(round(frac * pool.height)).filter(source="mixed")
    cutoff = Node(
        ("score_cutoff", over), None, SCORE_CUTOFF, ScoreCutoffConfig(frac, over), {"scores": tuple(map(scores, sources))}
    )
    config = CorpusConfig(best_scores=True, drop_low_quality=False)
    kept = made(store, corpus(MIXED, config, scores=scores(MIXED), cutoff=cutoff))
    assert ids(kept) == set(best["id"]) != set()
    assert kept.manifest.statistics["drops"] == {"below_cutoff": tables[0].height - best.height}


def test_a_corpus_drops_below_a_threshold_and_by_published_rules(store):
    scored = dict(table(made(store, scores(MIXED))).iter_rows())
    cut = made(store, corpus(MIXED, CorpusConfig(min_score=0.5, drop_low_quality=False), scores=scores(MIXED)))
    assert ids(cut) == {i for i, score in scored.items() if score >= 0.5}
    config = QualityRulesConfig("prose", (RuleSet("own", "here", (Rule("num_words", low=55),)),))
    rules = Node(("datakit", "rules"), "mixed", QUALITY_RULES, config, {"normalized": documents(MIXED)})
    strict = made(store, corpus(MIXED, CorpusConfig(rule_sets=("own",), drop_low_quality=False), rules=rules))
    marked = made(store, rules).manifest.extra["rule_sets"]["own"]
    assert strict.manifest.statistics["drops"] == {f"own:{reason}": n for reason, n in marked.items()} != {}
    with pytest.raises(IncompleteError, match=r"has no column gophr; it has: id, num_words"):
        made(store, corpus(MIXED, CorpusConfig(rule_sets=("gophr",)), rules=rules))


def test_inputs_that_no_filter_reads_are_refused(store):
    with pytest.raises(ValueError, match=r"filters read \['quality'\], its optional inputs are \['quality', 'scores'\]"):
        made(store, corpus(MIXED, CorpusConfig(), scores=scores(MIXED)))
    with pytest.raises(ValueError, match=r"filters read \['quality', 'scores'\], its optional inputs are \['quality'\]"):
        made(store, corpus(MIXED, CorpusConfig(min_score=0.1)))


def test_configs_name_what_is_wrong():
    for make, message in (
        (lambda: Seed("good", "positive", max_documents=0), "max_documents is 0"),
        (lambda: ScorerConfig("s", (Seed("good", "positive"),)), r"labels \['positive'\]; both"),
        (lambda: replace(CONFIG, backend="svm"), "backend is 'svm'; it must be one of hashed, fasttext"),
        (lambda: FeatureConfig(bits=40), "bits is 40"),
        (lambda: ScoreCutoffConfig(1.5), "keep_frac is 1.5"),
        (lambda: CorpusConfig(min_score=2.0), "min_score is 2.0"),
    ):
        with pytest.raises(ValueError, match=message):
            make()
    assert from_jsonable(ScorerConfig, json.loads(json.dumps(to_jsonable(CONFIG)))) == CONFIG
    assert "backend" not in to_jsonable(CONFIG)  # scorers from before there was a choice keep their configs
    assert "min_score" not in to_jsonable(CorpusConfig())  # corpora from before scores keep their addresses


@given(st.lists(st.tuples(st.floats(-5, 5), st.booleans()), min_size=2, max_size=60))
def test_auc_is_the_share_of_pairs_in_order(rows):
    scores, labels = np.array([r[0] for r in rows]), np.array([r[1] for r in rows])
    pairs = [(p > n) + 0.5 * (p == n) for p in scores[labels] for n in scores[~labels]]
    if pairs:
        assert auc(scores, labels) == pytest.approx(np.mean(pairs))
    else:
        with pytest.raises(ValueError, match="both labels"):
            auc(scores, labels)


def test_calibration_finds_the_slope_that_made_the_labels():
    generator = np.random.default_rng(3)
    logits = generator.normal(0, 3, 20_000)
    labels = generator.random(20_000) < sigmoid(0.5 * logits - 1)
    platt = fitted_platt(logits, labels)
    assert platt.slope == pytest.approx(0.5, abs=0.02) and platt.offset == pytest.approx(-1, abs=0.05)
    error = expected_calibration_error(reliability(platt.probability(logits), labels))
    assert error < 0.02 < expected_calibration_error(reliability(sigmoid(logits), labels))


@given(st.text(st.sampled_from("ab cé\n"), max_size=3_000))
def test_windows_are_pieces_of_the_text_and_rows_have_length_one(text):
    pieces = windows(text, FeatureConfig(window_chars=100, max_windows=5))
    assert 1 <= len(pieces) <= 5 and all(piece in text for piece in pieces)
    norms = np.sqrt(hashed(pieces, 12).multiply(hashed(pieces, 12)).sum(axis=1))
    assert all(np.isclose(norm, 1) or not any(c.isalnum() for c in piece) for norm, piece in zip(norms, pieces, strict=True))
