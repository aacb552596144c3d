"""Whether an artifact may be used: verdicts, waivers, the launch gate, code fingerprints and evidence on drift.

Comparing lineage tables with manifests belongs in `lineage.graph`; making an artifact again belongs in `lineage.build`.
"""
