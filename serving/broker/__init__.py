"""The broker: N model servers behind one URL, by requests that are written down and leased.

    python -m serving.broker --store FILE                                  one URL for clients, on loopback
    python -m serving.server CHECKPOINT --broker URL                        a server of ours that takes its share
    python -m serving.broker.worker --broker URL --server URL              any other one with OpenAI's API (vLLM, SGLang)
    python -m serving.broker.client --url URL ASKS.jsonl RECORD.jsonl      many requests, each answered and recorded once

Here: `queue.py` (the SQLite file of `schema.py`: what waits, what is leased until when, what was answered), `app.py` (HTTP to
clients and workers, whose forms are in `forms.py`), `upkeep.py` (what a broker does unasked), `worker.py` (takes leases and
asks its server), `client.py` (asks until everything is answered). Nothing here imports JAX: a broker runs where no model does.
Read `queue.py` first; docs/recipes/many_workers.md shows it running.
"""
