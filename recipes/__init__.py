"""What the lab declares: sources, runs, sweeps, ferries, canaries. Data only.

Belongs here: functions that return the engines' frozen configs and the nodes made of them. Does not belong here: work.
A new dataset, mixture or run changes this package only. Read `lab.py` first, then `records/`, `data.py` and `tokenized.py`.
"""
