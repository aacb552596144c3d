"""The inference service: `python -m serving.server CHECKPOINT_FOLDER`, OpenAI's completions API over one of our checkpoints.

- `engine.py`: compiled steps over rows of key/value caches; `prefix.py`: prompt blocks that are computed once.
- `scheduler.py`: continuous batching in one thread; `sequence.py`: the state of one request.
- `sampling.py`, `grammar.py`, `text.py`: the choice of a token; JSON output; tokens into text, and stop strings.
- `protocol.py`, `generation_requests.py`: the fields of a request, and what the scheduler gets.
- `answers.py`, `streams.py`: the objects and events that go back.
- `chat.py`, `template_process.py`: chat templates, rendered in a limited process.
- `opening.py`, `loaded_model.py`: a folder as a model; `weights.py`, `versions.py`: other weights while the server runs.
- `app.py`: the HTTP routes; `metrics.py`: counters.

Not here: many servers behind one URL (`serving.broker`), the model (`trainer.model`), scoring without a server.

Read `engine.py`, then `scheduler.py`. How to use it: `docs/recipes/serve_a_checkpoint.md`.
"""
