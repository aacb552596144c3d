"""Specs of runs: model, optimizer, schedule, compute options and mesh, and the checks of these records.

Code that runs a step or touches a checkpoint belongs in `trainer`.
"""
