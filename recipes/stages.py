"""All stages by name with the types of their configs, so that a manifest finds the code of its artifact.

A new stage gets a line here (tests/shell/test_provenance.py holds that none is forgotten).
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType

from datakit.cards.card import CARD
from datakit.contamination.index import CONTAMINATION_INDEX
from datakit.contamination.marks import CONTAMINATION
from datakit.corpus.build import CORPUS
from datakit.corpus.removals import REMOVALS
from datakit.dedup.containment import CONTAINMENT
from datakit.dedup.duplicates import DUPLICATES
from datakit.dedup.minhash import MINHASH
from datakit.dedup.paragraphs import PARAGRAPHS
from datakit.documents.normalize import NORMALIZE
from datakit.quality.rules import QUALITY_RULES
from datakit.quality.score_cutoff import SCORE_CUTOFF
from datakit.quality.scorer import SCORER
from datakit.quality.scores import SCORES
from datakit.quality.verdicts import QUALITY
from datakit.semantics.duplicates import SEMANTIC_DUPLICATES
from datakit.semantics.embeddings import EMBEDDINGS
from datakit.sources.raw import RAW
from datakit.sources.roster import ROSTER
from datakit.tags.code_licences import CODE_LICENCES
from datakit.tags.domain_model import DOMAIN_MODEL
from datakit.tags.domains import DOMAINS
from datakit.tags.languages import LANGUAGES
from datakit.tokens.cache import TOKEN_CACHE
from datakit.tokens.extended_tokenizer import EXTENDED_TOKENIZER
from datakit.tokens.tokenizer import TOKENIZER
from datakit.tokens.tokenizer_files import TOKENIZER_FILES
from evals.audit.build import AUDIT
from evals.items.stage import CONTAMINATION_SCORES, EVAL_RESULT, EXPORT_CANARY, GAP, TRIAL_RESULT
from evals.items.suites import SUITE
from evals.reports.leaderboard_stage import LEADERBOARD
from evals.reports.report import REPORT
from evals.tasks.policy import POLICY
from lineage.build.waiver_stage import WAIVER
from lineage.order.chosen import CHOSEN_MIXTURE
from lineage.order.mixture import MIXTURE
from lineage.stage import Stage
from post_training.audit import REWARD_AUDIT
from post_training.environments.arithmetic import ADDITION
from post_training.environments.benchmark import BENCHMARK
from post_training.environments.gym import GYM
from post_training.environments.rephrase import REPHRASE
from post_training.environments.repository import REPOSITORY
from post_training.labels.stage import LABELS
from post_training.stage import HELD_OUT, REWARD_CHECKPOINT, ROLLOUTS
from post_training.synthetic.accepted import SYNTHETIC_ACCEPTED
from post_training.synthetic.rollouts import SYNTHETIC_ROLLOUTS
from post_training.texts import PROMPT_TEXTS, ROLLOUT_TEXTS
from recipes.contamination import DeclaredPolicy
from science.annealing_stage import ANNEALING
from science.batch_stage import CRITICAL_BATCH
from science.correlation_stage import CORRELATIONS
from science.forecasts.board import BOARD
from science.forecasts.fit_stage import FIT
from science.forecasts.freeze import FORECAST
from science.forecasts.ladder import LADDER_FORECAST
from science.forecasts.table import TABLE
from science.forecasts.verdict import VERDICT
from science.mixtures.confirmation_stage import SWARM_CONFIRMATION
from science.mixtures.fit_stage import SWARM_FIT
from science.mixtures.next_round_stage import SWARM_NEXT_ROUND
from science.mixtures.proposal_stage import SWARM_PROPOSAL
from science.mixtures.runs import SWARM_RUNS
from science.mixtures.snr_stage import SWARM_SNR
from science.promotion_stage import PROMOTION
from science.proxy_stage import PROXY
from science.repetition_stage import REPETITION
from science.search.round_stage import ROUND_PROPOSAL
from science.seed_stage import SEED_VARIANCE
from trainer.hf.adapter import HF_ADAPTER
from trainer.hf.export import HF_MODEL
from trainer.hf.import_model import HF_IMPORT
from trainer.spec.pair_stage import PAIR_SCORES
from trainer.spec.stage import CHECKPOINT, TRIAL


@cache
def stages() -> Mapping[str, Stage]:
    """Stage name -> the stage."""
    known = (
        RAW,
        ROSTER,
        NORMALIZE,
        MINHASH,
        DUPLICATES,
        PARAGRAPHS,
        CONTAINMENT,
        QUALITY,
        QUALITY_RULES,
        LABELS,
        LANGUAGES,
        CODE_LICENCES,
        DOMAIN_MODEL,
        DOMAINS,
        EMBEDDINGS,
        SEMANTIC_DUPLICATES,
        CARD,
        SCORER,
        SCORES,
        SCORE_CUTOFF,
        SUITE,
        replace(CONTAMINATION_INDEX, config=DeclaredPolicy),  # its function takes any policy
        replace(CONTAMINATION, config=DeclaredPolicy),  # its function takes any policy
        CORPUS,
        REMOVALS,
        TOKENIZER,
        EXTENDED_TOKENIZER,
        TOKEN_CACHE,
        MIXTURE,
        CHECKPOINT,
        TRIAL,
        PAIR_SCORES,
        TRIAL_RESULT,
        HF_MODEL,
        HF_ADAPTER,
        POLICY,
        EVAL_RESULT,
        CONTAMINATION_SCORES,
        GAP,
        EXPORT_CANARY,
        AUDIT,
        LEADERBOARD,
        REPORT,
        WAIVER,
        HF_IMPORT,
        TOKENIZER_FILES,
        CHOSEN_MIXTURE,
        TABLE,
        FIT,
        SWARM_RUNS,
        SWARM_SNR,
        SWARM_NEXT_ROUND,
        SWARM_FIT,
        SWARM_PROPOSAL,
        SWARM_CONFIRMATION,
        FORECAST,
        VERDICT,
        PROMOTION,
        CORRELATIONS,
        SEED_VARIANCE,
        ANNEALING,
        PROXY,
        CRITICAL_BATCH,
        REPETITION,
        ROUND_PROPOSAL,
        LADDER_FORECAST,
        BOARD,
        ADDITION,
        BENCHMARK,
        GYM,
        REPHRASE,
        REPOSITORY,
        SYNTHETIC_ROLLOUTS,
        SYNTHETIC_ACCEPTED,
        REWARD_CHECKPOINT,
        ROLLOUTS,
        HELD_OUT,
        PROMPT_TEXTS,
        ROLLOUT_TEXTS,
        REWARD_AUDIT,
    )
    return MappingProxyType({stage.name: stage for stage in known})
