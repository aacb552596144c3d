"""Evaluate a checkpoint: the evaluation policy, and one module for each kind of task.

Items and prompts belong in `evals.items`; models behind a URL belong in `evals.remote`.
"""
