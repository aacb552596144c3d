"""Write one artifact: the writer that a stage receives, its working folder, and the commit.

Which artifact to write, and from what, belongs in `lineage.build`.
"""
