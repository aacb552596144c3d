"""Records that a declared run is composed of: scope, decontamination, corpus, tokens, mix, evaluation, execution and run.

Belongs here: frozen records that check themselves, and the placement of what is made from them. Does not belong here: nodes
(`recipes/data.py`, `tokenized.py` and `runs.py` beside it), sweeps and studies (`recipes/study.py`), what the lab declares
(`recipes/studies/`). Each record holds the records that it is made from, so no name is written twice.
docs/design/records.md draws them.
"""
