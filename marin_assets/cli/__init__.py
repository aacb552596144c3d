"""The command line `./marin`: command definitions, and the functions that print their results.

Dagster assets, checks and jobs belong in `marin_assets`.
"""
