"""Benchmarks, one record in one file each. To add a benchmark, write its file and name it in `registry.py`.

Belongs here: what only one benchmark needs: prompts, stops, reading of answers, file formats, metrics. Does not belong
here: which tasks a checkpoint is asked and when (`recipes/policies.py`), where files lie (`recipes/suites.py`), and the
code that runs tasks (`evals/tasks/benchmarks.py`, `evals/tasks/generation.py`).
"""
