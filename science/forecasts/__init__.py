"""Sweeps as artifacts: the table of trials, the fit, a forecast that is frozen before its target runs, and the verdict."""
