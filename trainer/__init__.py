"""The trainer: `python -m trainer job.json` trains a small language model on a frozen mixture, with exact resume.

Belongs here: specs of runs, models, optimizers, the training loop, checkpoints, scoring, import and export of models. Does not
belong here: where data comes from (`lineage.order` reads it), what to train (`recipes`), and who starts a job (the shell).
Read `spec/config.py`, `model/transformer.py`, `train.py` in that order. Other packages import `trainer.api` (no JAX) and
`trainer.inference` (JAX); recipes and the shell also import the specs in `trainer.spec` and the stages in `trainer.hf`.
"""
