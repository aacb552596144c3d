"""The evaluation engine: benchmark items, prompts, scores of a checkpoint, the contamination audit.

Code that turns benchmark files into `item/1`, renders prompts, scores a checkpoint with intervals, or says which items
a checkpoint has seen belongs here. Marking training documents belongs in `datakit.contamination` (it reads the same
items); running a model in `trainer.scoring`; serving one in `serving.server`; orchestration in `marin_assets`.

Read `items/item.py` and `items/suites.py` first, then `items/stage.py`. Nothing here imports Dagster. The formats are
in `docs/design/contracts.md`; `docs/recipes/add_an_eval_suite.md` shows how to add a suite.
"""
