"""Sensors: what runs because something happened - a checkpoint appeared, a ferry passed, a run failed.

Belongs here: looking and requesting. Does not belong here: any work; a tick is short, idempotent and keyed.
Concept: Dagster docs, "Sensors".
"""
