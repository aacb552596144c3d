"""Resources: what the graph runs with, the lab's stores and the launcher of its jobs.

Belongs here: thin typed shells that return a plain object. Does not belong here: what is computed (the engines) or declared
(recipes). Concept: Dagster docs, "External resources".
"""
