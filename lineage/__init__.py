"""The ground that everything else imports: artifacts and their manifests, plans and jobs, the data order and its inverse.

Belongs here: what makes, finds and trusts an artifact, and what says where a document went, so that engines and audits read
it in one way. Does not belong here: code that transforms text, trains or scores (the engines), or that knows Dagster (the
shell). It imports no other package of ours. Read `artifact/spec.py`, `artifact/store.py` and `build/plan.py` first.

Subpackages, each importing only those above it: `storage` (files below a root), `artifact` (identity, manifest, store),
`shards` (work in parts), `trust` (gate, verdicts, drift), `writing` (one artifact), `order` (the data order), `graph` (lineage
tables), `jobs` (processes of their own), `build` (plans), `upkeep` (copies and upgrades of stores).
"""
