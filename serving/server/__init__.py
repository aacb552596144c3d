"""The inference service: `python -m serving.server CHECKPOINT_FOLDER`, OpenAI's completions API over one of our checkpoints.

Here: `engine.py` (compiled steps over rows of key/value caches), `prefix.py` (prompt blocks computed once), `sampling.py`,
`text.py` (tokens into text, stop strings), `scheduler.py` (continuous batching in one thread), `forms.py` (reading a request by
its form), `protocol.py` (what a request may hold), `refusals.py` (errors, body sizes, keys), `answers.py` (what goes back),
`chat.py` (chat templates), `app.py` (the HTTP routes). Not here: many servers behind one URL (`serving.broker`), the model and
its cached path (`trainer.inference`), scoring without a server (`trainer.scoring`).

Read `engine.py`, then `scheduler.py`. How to use it: `docs/recipes/serve_a_checkpoint.md`.
"""
