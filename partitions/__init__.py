"""The graph's axes, shared by assets, checks, sensors and jobs.

Belongs here: partition definitions and the codecs of their keys. Does not belong here: dataset facts (recipes) and run
settings (resources). At most two dimensions and no custom mappings: Dagster's UI and backfills handle these well.
Concept: Dagster docs, "Partitions and backfills".
"""
