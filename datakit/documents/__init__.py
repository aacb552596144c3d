"""Documents in Parquet: the schemas, the stage that normalizes records, and sorted reading and writing.

Decisions about which documents stay belong in `datakit.quality`, `datakit.dedup`, `datakit.contamination` and
`datakit.corpus`.
"""
