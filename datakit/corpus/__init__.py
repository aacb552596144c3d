"""Build the corpus: apply the declared filters to documents and split them into train and held-out.

The measurements that filters read belong in `datakit.dedup`, `datakit.quality` and `datakit.contamination`.
"""
