"""Sensors: they start work because something happened: a checkpoint appeared, a ferry passed, a run failed.

Code that looks and requests belongs here. Work does not: a tick is short, idempotent and keyed. Concept: Dagster docs,
"Sensors".
"""
