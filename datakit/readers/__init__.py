"""Turn raw files into records, one reader per format, and apply the filter steps that a source declares.

Fetching files belongs in `datakit.sources`; Parquet parts of documents belong in `datakit.documents`.
"""
