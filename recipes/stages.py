"""All stages by name with the types of their configs, so that a manifest finds the code of its artifact.

A new stage gets a line here (tests/shell/test_provenance.py holds that none is forgotten).
"""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from datakit.cards.card import CARD, CardConfig
from datakit.contamination.index import CONTAMINATION_INDEX
from datakit.contamination.marks import CONTAMINATION
from datakit.corpus.build import CORPUS, CorpusConfig
from datakit.dedup.duplicates import DUPLICATES, DuplicatesConfig
from datakit.dedup.minhash import MINHASH, MinHashConfig
from datakit.dedup.paragraphs import PARAGRAPHS, ParagraphsConfig
from datakit.documents.normalize import NORMALIZE, NormalizeConfig
from datakit.quality.rules import QUALITY_RULES, QualityRulesConfig
from datakit.quality.score_cutoff import SCORE_CUTOFF, ScoreCutoffConfig
from datakit.quality.scorer import SCORER, ScorerConfig
from datakit.quality.scores import SCORES, ScoresConfig
from datakit.quality.verdicts import QUALITY, QualityConfig
from datakit.sources.raw import RAW
from datakit.sources.roster import ROSTER, RosterConfig
from datakit.sources.source import Source
from datakit.tokens.cache import TOKEN_CACHE, TokenCacheConfig
from datakit.tokens.tokenizer import TOKENIZER, TokenizerConfig
from datakit.tokens.tokenizer_files import TOKENIZER_FILES, TokenizerFilesConfig
from evals.audit.build import AUDIT, AuditConfig
from evals.items.stage import (
    CONTAMINATION_SCORES,
    EVAL_RESULT,
    EXPORT_CANARY,
    GAP,
    TRIAL_RESULT,
    ContaminationScoresConfig,
    EvalConfig,
    ExportCanaryConfig,
    GapConfig,
    TrialResultConfig,
)
from evals.items.suites import SUITE, SuiteConfig
from evals.reports.leaderboard_stage import LEADERBOARD, LeaderboardConfig
from evals.reports.report import REPORT, ReportConfig
from evals.tasks.policy import POLICY, PolicyConfig
from lineage.build.reproduce import KnownStage
from lineage.build.waiver_stage import WAIVER
from lineage.order.mixture import MIXTURE, MixtureConfig
from lineage.trust.waivers import Waiver
from recipes.contamination import DeclaredPolicy
from science.fit_sweep import FitConfig
from science.forecasts.board import BOARD, BoardConfig
from science.forecasts.fit_stage import FIT
from science.forecasts.freeze import FORECAST, ForecastConfig
from science.forecasts.table import TABLE, TableConfig
from science.forecasts.verdict import VERDICT, VerdictConfig
from trainer.hf.export import HF_MODEL, HfExportConfig
from trainer.hf.import_model import HF_IMPORT, HfImportConfig
from trainer.spec.stage import CHECKPOINT, TRIAL, CheckpointConfig


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
        KnownStage(CONTAMINATION_INDEX, DeclaredPolicy),
        KnownStage(CONTAMINATION, DeclaredPolicy),
        KnownStage(CORPUS, CorpusConfig),
        KnownStage(TOKENIZER, TokenizerConfig),
        KnownStage(TOKEN_CACHE, TokenCacheConfig),
        KnownStage(MIXTURE, MixtureConfig),
        KnownStage(CHECKPOINT, CheckpointConfig),
        KnownStage(TRIAL, CheckpointConfig),
        KnownStage(TRIAL_RESULT, TrialResultConfig),
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
        KnownStage(TABLE, TableConfig),
        KnownStage(FIT, FitConfig),
        KnownStage(FORECAST, ForecastConfig),
        KnownStage(VERDICT, VerdictConfig),
        KnownStage(BOARD, BoardConfig),
    )
    return MappingProxyType({entry.stage.name: entry for entry in known})
