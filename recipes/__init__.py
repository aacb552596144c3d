"""What the lab declares: sources, lines from sources to models, runs, ferries, canaries. Data only.

Belongs here: functions that return the engines' frozen configs and the nodes made of them. Does not belong here: work.
Adding a dataset, a mixture or a run touches this package and nothing else. Read `lab.py` first, then `lines.py`, `data.py`.
"""
