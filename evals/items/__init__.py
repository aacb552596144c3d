"""Benchmark items: file formats, suites, few-shot examples, prompts, and the stages that score them.

Asking a model and scoring its answers belongs in `evals.tasks`.
"""
