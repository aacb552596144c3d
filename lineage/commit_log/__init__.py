"""The commit log: which artifacts have, or were made from, some bytes, found without a listing of the root.

Its answers are candidates. The caller confirms each one with its manifest (`lineage.graph.below`). See
docs/design/commit_log.md.
"""
