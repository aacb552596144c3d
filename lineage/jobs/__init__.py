"""Stages that run as their own process: the job file, launchers, and the guard against reads from other regions.

Launchers of clusters belong in `resources`.
"""
