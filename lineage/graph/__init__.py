"""The lineage tables: edges between artifacts, walks over them, and checks that they match the manifests.

Opening and writing single artifacts belongs in `lineage`.
"""
