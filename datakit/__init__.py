"""The data engine: pinned files become documents, marks, a corpus, a tokenizer and tokens. A module a stage.

Belongs here: anything that reads, judges or rewrites text. Does not belong here: where artifacts lie (lineage), which sources
and thresholds the lab uses (recipes), when stages run (the shell). It runs with no Dagster installed. Read in the order of
the pipeline: `raw`, `normalize`, `minhash`, `duplicates`, `quality`, `contamination`, `corpus`, `tokenizer`, `token_cache`.
"""
