"""Find duplicate documents and repeated paragraphs: MinHash signatures, band joins, clusters and cuts.

Removing what is found belongs in `datakit.corpus`.
"""
