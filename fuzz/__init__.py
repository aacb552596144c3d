"""Hostile inputs against everything that reads what strangers write: `make fuzz`, or `python -m fuzz TARGET --inputs 1000`.

Here: `mutate.py` (hostile bytes from seeds), `run.py` (one target within bounds), `targets/` (one file a target: its seeds and
one attempt), `found/` (inputs that once broke a target; each is asked again first). No package imports anything here.
"""
