"""Contamination policies of other groups beyond the two that the product keeps, and the comparison of all of them.

Nothing in the product imports these modules; `benchmarks/compare_policies.py`, `planted_leaks.py` and tests do.
"""
