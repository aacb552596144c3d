"""Artifacts on storage: identity, manifest, the store that finds and opens them, and names on the command line.

Making an artifact belongs in `lineage.writing`; whether to trust one belongs in `lineage.trust`; files and URLs
below a root belong in `lineage.storage`.
"""
