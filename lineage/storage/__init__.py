"""Files under a root: local folders, buckets and other URLs, byte ranges, digests and leases.

Nothing here knows artifacts or manifests; these belong in `lineage`.
"""
