"""Jobs and schedules: what runs together, and when.

Belongs here: selections of assets and cron lines. Does not belong here: conditions on events (sensors) or any work (assets).
Concept: Dagster docs, "Asset jobs", "Schedules".
"""
