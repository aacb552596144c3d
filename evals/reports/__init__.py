"""Reports over finished results: leaderboard, comparison of two results, perplexity gap, the ferry report.

Code that computes scores belongs in `evals.scoring` and `evals.tasks`.
"""
