"""The ground: artifacts, manifests, the token format, the data order and its inverse.

Belongs here: whatever says where a document went, so that both the engines and an audit can read it.
Does not belong here: anything that transforms text, trains or scores (the engines), or knows Dagster (the shell).
It imports nothing of ours. Read `spec.py`, `store.py` and `plan.py` first.
"""
