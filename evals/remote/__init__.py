"""Evaluate a model behind a URL: `python -m evals.remote`.

Our own server and the broker belong in `serving`; the tasks themselves belong in `evals.tasks`.
"""
