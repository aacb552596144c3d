"""Trace benchmark items and documents through corpora and training: the contamination audit and takedowns.

Finding items in documents belongs in `datakit.contamination`.
"""
