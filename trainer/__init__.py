"""The trainer: `python -m trainer job.json` trains a small Llama from a frozen mixture, with exact resume.

Belongs here: model, optimizer, schedule, loop, checkpoints, scoring. Does not belong here: where data comes from (it reads
`lineage.order`), what to train (recipes) and who asked (the shell). Read `config.py`, `model.py`, `train.py` in that order.
"""
