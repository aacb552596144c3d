"""The graph's axes, shared by assets, checks, sensors and jobs.

Belongs here: partition definitions and the codecs of their keys. Does not belong here: dataset facts (recipes) and run
settings (resources). At most two dimensions, no custom mappings (research/dagster.md, section 2.2).
Concept: Dagster docs, "Partitions and backfills".
"""
