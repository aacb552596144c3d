"""Prepared questions: what people ask about a lab, one query each. docs/recipes/ask_the_operations.md shows them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """A question in words, and the SQL that answers it."""

    asks: str
    sql: str


QUESTIONS = {
    "cost-of-runs": Question(
        "What did each training run cost, with the attempts that failed?",
        """SELECT regexp_replace(name, '/checkpoint.*', '') AS run, any_value(owner) AS owner, max(created)[:10] AS day,
                  max(attempts) AS attempts, max(failed_attempts) AS failed, sum(dollars) AS dollars, max(unpriced) AS unpriced
           FROM costs WHERE stage IN ('trainer.checkpoint', 'post_training.checkpoint')
           GROUP BY store, run, paid_by ORDER BY dollars DESC NULLS FIRST""",
    ),
    "cost-of-ferries": Question(
        "What did each day's ferry cost in all?",
        """SELECT partition AS day, count(*) AS artifacts, CASE WHEN bool_or(dollars IS NULL) THEN NULL ELSE sum(dollars) END
                  AS dollars FROM costs WHERE key LIKE 'ferry/%' GROUP BY day ORDER BY day DESC""",
    ),
    "cost-of-failures": Question(
        "How much was spent on attempts that failed or were preempted, and why?",
        """SELECT stage, hardware, left(why, 80) AS reason, count(*) AS attempts, sum(dollars) AS dollars
           FROM attempts WHERE state IN ('failed', 'interrupted') GROUP BY ALL ORDER BY dollars DESC NULLS FIRST""",
    ),
    "unpriced": Question(
        "Which costs are not known, and what is missing?",
        "SELECT unpriced, count(*) AS attempts, min(started) AS first FROM attempts WHERE unpriced <> '' GROUP BY ALL",
    ),
    "spending-by-user": Question(
        "Who spent how much in each week?",
        """SELECT date_trunc('week', started::TIMESTAMP)::DATE AS week, owner, sum(dollars) AS dollars,
                  count(*) FILTER (dollars IS NULL) AS unpriced FROM attempts GROUP BY ALL ORDER BY week DESC, dollars DESC""",
    ),
    "run-table": Question(
        "The weekly run table: run, user, hardware, hours, FLOPs, MFU, loss, bits per byte, dollars.",
        """WITH bits AS (SELECT store, checkpoint, min(value) AS bpb FROM results
                         WHERE metric LIKE '%bits_per_byte' GROUP BY ALL)
           SELECT c.run, a.owner, t.hardware, round(sum(t.seconds) / 3600, 3) AS hours, c.model_flops, c.hardware_flops, c.mfu,
                  c.loss_nats, any_value(b.bpb) AS bpb, any_value(p.dollars) AS dollars, max(t.started) AS started
           FROM checkpoints c JOIN artifacts a USING (store, address) JOIN processes p USING (store, process)
           JOIN attempts t ON t.store = a.store AND t.process = a.process
           LEFT JOIN bits b ON b.store = a.store AND b.checkpoint = a.address
           GROUP BY ALL HAVING c.step = max(c.num_steps) ORDER BY started DESC""",
    ),
    "storage-by-prefix": Question(
        "Which keys hold how many bytes, and when were they last used?",
        """SELECT a.store, a.prefix, count(*) AS artifacts, sum(a.num_bytes) AS bytes, max(u.used_at) AS last_used
           FROM artifacts a JOIN last_used u USING (store, address) GROUP BY ALL ORDER BY bytes DESC""",
    ),
    "storage-by-user": Question(
        "Whose artifacts hold how many bytes?",
        "SELECT store, owner, count(*) AS artifacts, sum(num_bytes) AS bytes FROM artifacts GROUP BY ALL ORDER BY bytes DESC",
    ),
    "storage-by-day": Question(
        "How do bytes and dollars a month change from day to day, by prefix and storage class?",
        """WITH days AS (SELECT day, store, prefix, storage_class, sum(bytes)::BIGINT AS bytes,
                                CASE WHEN bool_or(dollars_a_month IS NULL) THEN NULL ELSE sum(dollars_a_month) END AS dollars
                         FROM storage GROUP BY ALL)
           SELECT *, bytes - lag(bytes) OVER (PARTITION BY store, prefix, storage_class ORDER BY day) AS change
           FROM days ORDER BY day DESC, bytes DESC""",
    ),
    "caches-without-readers": Question(
        "Which token caches did nothing read?",
        """SELECT a.store, a.name, a.num_bytes, a.created FROM artifacts a JOIN last_used u USING (store, address)
           WHERE a.stage = 'datakit.token_cache' AND u.readers = 0 ORDER BY num_bytes DESC""",
    ),
    "standing-waivers": Question(
        "Which waivers are in force, who gave them, and until when?",
        """SELECT problem, artifact, target, who, why, expires FROM waivers
           WHERE refused = '' AND expires >= current_date::VARCHAR ORDER BY expires""",
    ),
    "refused-artifacts": Question(
        "Which bytes does the gate hold back, by which check, and why?",
        "SELECT name, verdict, kind, why, who, recorded_at FROM standing_verdicts ORDER BY recorded_at DESC",
    ),
    "contaminated": Question(
        "Which checkpoints has an audit found contaminated, or not clean?",
        """SELECT c.run, c.step, d.verdict, d.address FROM audits d JOIN checkpoints c
           ON c.store = d.store AND c.address = d.checkpoint WHERE d.verdict <> 'clean' ORDER BY ALL""",
    ),
    "unaudited": Question(
        "Which checkpoints have no audit?",
        """SELECT c.run, c.step, c.address FROM checkpoints c
           WHERE NOT EXISTS (SELECT 1 FROM audits d WHERE d.store = c.store AND d.checkpoint = c.address) ORDER BY ALL""",
    ),
    "forecasts": Question(
        "Which forecasts were hit or missed, and which still wait?",
        """SELECT f.target, f.task, f.metric, f.point, f.low_90, f.high_90, v.measured, coalesce(v.outcome, 'waits') AS outcome
           FROM forecasts f LEFT JOIN forecast_verdicts v ON v.store = f.store AND v.forecast = f.address ORDER BY f.frozen""",
    ),
    "synthetic-rows": Question(
        "From which teacher, prompt and verifier is each accepted row of a synthetic set?",
        """SELECT r.rollout, r.prompt_id, e.name AS environment, e.data_version AS prompts, r.verifier, r.teacher_model,
                  coalesce(t.parent_data_version, 'unknown') AS teacher_digest, r.address, r.store
           FROM accepted r JOIN artifacts e ON e.store = r.store AND e.address = r.environment
           JOIN inputs s ON s.store = r.store AND s.child = r.address AND s.parent = r.shard
           LEFT JOIN inputs t ON t.store = r.store AND t.child = r.shard AND t.input = 'teacher'
           ORDER BY r.address, r.rollout""",
    ),
    "rollouts": Question(
        "What did each policy or teacher sample, what was the mean reward, and how much of it was used?",
        """WITH kept AS (SELECT store, shard, count(*) AS rows FROM accepted GROUP BY ALL)
           SELECT r.run, r.iteration, r.policy, r.policy_step, r.rows, r.tokens, r.reward_mean, r.right,
                  coalesce(r.used, k.rows) AS used
           FROM rollouts r LEFT JOIN kept k ON k.store = r.store AND k.shard = r.address
           ORDER BY r.store, r.run, r.iteration""",
    ),
    "slowest-stages": Question(
        "Which stages take the most time and memory?",
        """SELECT stage, count(*) AS attempts, round(median(seconds), 2) AS median_seconds, max(seconds) AS longest,
                  max(peak_rss_bytes) AS peak_bytes FROM attempts GROUP BY ALL ORDER BY sum(seconds) DESC""",
    ),
}
