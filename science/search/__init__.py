"""Proposers: which trials a search runs next, as a function of a table, a seed and nothing else."""
