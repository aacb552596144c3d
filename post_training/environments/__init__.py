"""Environments: prompts with a split, and for each kind a verifier that judges a completion.

What belongs here: one module for each kind of environment, the record of a verdict, the split, and
the table that stores prompts.
"""
