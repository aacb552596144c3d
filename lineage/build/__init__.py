"""Build artifacts from nodes: plans, stages that run here or on many machines, and artifacts made again.

Nodes themselves are declared in `recipes`; a single artifact is written by `lineage.writing`.
"""
