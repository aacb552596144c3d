"""Recipes that `marin train` and `marin init` write: a file for each run over own text, found by `recipes/own_recipes.py`."""
