"""Published training runs as graphs of declared phases: every phase a spec that the trainer's validation accepts.

Belongs here: phases with their warm starts, mixes, outcomes and reasons, dead branches included, and what the documents tell
against what is computed. The mixes themselves are in `recipes/marin_history.py`.
"""
