"""Measure document quality: rule signals, rule sets, trained scorers, scores and cutoffs.

Removing documents by these numbers belongs in `datakit.corpus`.
"""
