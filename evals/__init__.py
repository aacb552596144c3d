"""The evaluation engine: benchmark items, prompts, scores of a checkpoint, the contamination audit.

Here: what turns benchmark files into `item/1`, renders prompts from items, scores a checkpoint on them with intervals, and
says which items a checkpoint has seen. Not here: marking training documents (`datakit.contamination` reads the same items),
running a model (`trainer.scoring`; served to others by `serving.server`), orchestration (`marin_assets`).

Read `items.py` and `suites.py` first, then `stage.py`. Plain Python: nothing here imports Dagster. The formats are in
`docs/design/contracts.md`; how to add a suite is in `docs/recipes/add_an_eval_suite.md`.
"""
