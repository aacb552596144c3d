"""Serve models: an inference server for our checkpoints, and a broker that shares requests between servers.

Evaluation tasks belong in `evals`; the model and its decoding belong in `trainer`.
"""
