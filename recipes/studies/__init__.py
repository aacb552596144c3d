"""What the lab trains: one file for each study, with a function `study()` that returns its record.

Belongs here: the records of runs, sweeps, corpora and gaps that answer one question together, and run specs as functions of
`vocab_size`. Does not belong here: nodes, or anything that reads files. A new file is found by itself (`recipes/lab.py`).
"""
