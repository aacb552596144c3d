"""Find benchmark items in documents: policies, item indexes, scans, and the measured recall of a scan.

Reading and rendering benchmark items belongs in `evals.items`; removing documents belongs in `datakit.corpus`.
"""
