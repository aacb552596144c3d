"""Scenarios: past incidents and comparisons, run with the lab's real parts.

They may import everything, and nothing imports them. Tests run each at a small size; a make target runs it at full size in a
separate root.
"""
