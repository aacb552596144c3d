"""Every stage that the lab has, by name, with the type of its config: how a manifest finds the code that made its artifact.

A new stage gets a line here (tests/shell/test_provenance.py holds that none is forgotten).
"""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from datakit.card import CARD, CardConfig
from datakit.contamination import CONTAMINATION
from datakit.contamination_comparison import CONTAMINATION_COMPARISON, ComparisonConfig
from datakit.contamination_index import CONTAMINATION_INDEX
from datakit.contamination_methods import Policy
from datakit.corpus import CORPUS, CorpusConfig
from datakit.duplicates import DUPLICATES, DuplicatesConfig
from datakit.minhash import MINHASH, MinHashConfig
from datakit.normalize import NORMALIZE, NormalizeConfig
from datakit.paragraphs import PARAGRAPHS, ParagraphsConfig
from datakit.quality import QUALITY, QualityConfig
from datakit.quality_rules import QUALITY_RULES, QualityRulesConfig
from datakit.raw import RAW
from datakit.roster import ROSTER, RosterConfig
from datakit.score_cutoff import SCORE_CUTOFF, ScoreCutoffConfig
from datakit.scorer import SCORER, ScorerConfig
from datakit.scores import SCORES, ScoresConfig
from datakit.sources import Source
from datakit.token_cache import TOKEN_CACHE, TokenCacheConfig
from datakit.tokenizer import TOKENIZER, TokenizerConfig
from datakit.tokenizer_files import TOKENIZER_FILES, TokenizerFilesConfig
from evals.audit import AUDIT, AuditConfig
from evals.leaderboard_stage import LEADERBOARD, LeaderboardConfig
from evals.policy import POLICY, PolicyConfig
from evals.report import REPORT, ReportConfig
from evals.stage import (
    CONTAMINATION_SCORES,
    EVAL_RESULT,
    EXPORT_CANARY,
    GAP,
    ContaminationScoresConfig,
    EvalConfig,
    ExportCanaryConfig,
    GapConfig,
)
from evals.suites import SUITE, SuiteConfig
from lineage.mixture import MIXTURE, MixtureConfig
from lineage.reproduce import KnownStage
from lineage.waiver_stage import WAIVER
from lineage.waivers import Waiver
from trainer.hf_export import HF_MODEL, HfExportConfig
from trainer.hf_import import HF_IMPORT, HfImportConfig
from trainer.stage import CHECKPOINT, CheckpointConfig


@cache
def stages() -> Mapping[str, KnownStage]:
    """Stage name -> the stage and the type of its config."""
    known = (
        KnownStage(RAW, Source),
        KnownStage(ROSTER, RosterConfig),
        KnownStage(NORMALIZE, NormalizeConfig),
        KnownStage(MINHASH, MinHashConfig),
        KnownStage(DUPLICATES, DuplicatesConfig),
        KnownStage(PARAGRAPHS, ParagraphsConfig),
        KnownStage(QUALITY, QualityConfig),
        KnownStage(QUALITY_RULES, QualityRulesConfig),
        KnownStage(CARD, CardConfig),
        KnownStage(SCORER, ScorerConfig),
        KnownStage(SCORES, ScoresConfig),
        KnownStage(SCORE_CUTOFF, ScoreCutoffConfig),
        KnownStage(SUITE, SuiteConfig),
        KnownStage(CONTAMINATION_INDEX, Policy),
        KnownStage(CONTAMINATION, Policy),
        KnownStage(CONTAMINATION_COMPARISON, ComparisonConfig),
        KnownStage(CORPUS, CorpusConfig),
        KnownStage(TOKENIZER, TokenizerConfig),
        KnownStage(TOKEN_CACHE, TokenCacheConfig),
        KnownStage(MIXTURE, MixtureConfig),
        KnownStage(CHECKPOINT, CheckpointConfig),
        KnownStage(HF_MODEL, HfExportConfig),
        KnownStage(POLICY, PolicyConfig),
        KnownStage(EVAL_RESULT, EvalConfig),
        KnownStage(CONTAMINATION_SCORES, ContaminationScoresConfig),
        KnownStage(GAP, GapConfig),
        KnownStage(EXPORT_CANARY, ExportCanaryConfig),
        KnownStage(AUDIT, AuditConfig),
        KnownStage(LEADERBOARD, LeaderboardConfig),
        KnownStage(REPORT, ReportConfig),
        KnownStage(WAIVER, Waiver),
        KnownStage(HF_IMPORT, HfImportConfig),
        KnownStage(TOKENIZER_FILES, TokenizerFilesConfig),
    )
    return MappingProxyType({entry.stage.name: entry for entry in known})
