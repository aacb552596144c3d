"""Change or copy whole stores: copies in another root, and upgrades of stores that older code made.

Readers of an old format belong beside the format (`lineage.artifact.manifest`). A new format needs one row in `migrations`.
"""
