"""Pages of a run on rewards: the run, its scores on held-out prompts, and the audit of its rollouts."""

from pathlib import Path

from reward_worlds import checkpoint, environment, put, rollouts
from site_worlds import Walk, build, page_of, pages

from lineage.artifact.store import Store


def test_a_run_on_rewards_has_a_page_with_its_scores_and_its_audit(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "lab"))
    prompts = environment(store)
    last = checkpoint(store, prompts, 6, [rollouts(store, prompts, 0)])
    refs, step = {"checkpoint": last}, "step-00000006"
    scores = {"accuracy": 0.625, "pass_at_k": {"4": 0.875}, "prompts": 20}
    counts = {"items": 7, "matched_after": 2, "seen_in_training": 0}
    put(store, "runs/sums/held_out", step, "post_training.held_out", named=refs, held_out=scores)
    put(store, "runs/sums/contamination_audit", step, "post_training.audit", named=refs,
        audit={"verdict": "partial_only", "step": 6, "counts": counts})  # fmt: skip
    build(tmp_path / "site", store)
    run, audit = page_of(tmp_path / "site", "runs/sums"), page_of(tmp_path / "site", f"runs/sums/contamination_audit[{step}]")
    for wanted in (
        "Rollouts by iteration",
        "iteration-00000000",
        "0.25",
        "0.625",
        "pass@4",
        "0.875",
        "partial_only",
        "hidden_dim",
        'svg class="lineage"',
    ):
        assert wanted in run, wanted
    assert "matched after" in audit and "seen in training" in audit
    listed = (tmp_path / "site/kind/run.html").read_text()
    assert any(link.startswith("../run/runs-sums-") for link in Walk(listed).links)
    assert len([path for path in pages(tmp_path / "site") if path.startswith("evaluation/")]) == 1
