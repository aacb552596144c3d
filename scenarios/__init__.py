"""Scenarios: past incidents and comparisons, run with the lab's real parts.

They may import every package. No package imports them. Tests run each at a small size; a make target runs it at full size in a
separate root.
"""
