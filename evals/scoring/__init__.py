"""Records and scores of evaluations: formats, metrics, intervals, plots and HTML parts of reports.

Code that asks a model belongs in `evals.tasks`; whole report pages belong in `evals.reports`.
"""
