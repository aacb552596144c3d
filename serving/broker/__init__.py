"""The broker puts N model servers behind one URL. It records each request and leases it to a worker.

    python -m serving.broker --store FILE                                  one URL for clients, on loopback
    python -m serving.server CHECKPOINT --broker URL                        one of our servers, which takes a share
    python -m serving.broker.worker --broker URL --server URL              any other server with OpenAI's API (vLLM, SGLang)
    python -m serving.broker.client --url URL ASKS.jsonl RECORD.jsonl      many requests, each recorded once

- `queue.py`: requests that wait, are leased or are answered, in the SQLite file of `schema.py`.
- `app.py`: HTTP for clients and workers; `forms.py` declares the bodies.
- `upkeep.py`: the periodic sweep of a broker.
- `worker.py`: takes leases and sends the requests to its server.
- `client.py`: sends requests until all are answered.

Nothing here imports JAX, because a broker runs on machines without a model. Read `queue.py` first;
docs/recipes/many_workers.md shows the broker running.
"""
