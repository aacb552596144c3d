"""Run the shards of one artifact: worker processes, limits, failures, and shards shared between machines.

A shard knows files and arguments only. Manifests and commits belong in `lineage.writing`; launching machines belongs in
`lineage.build`.
"""
