"""Fuzz tests of all readers of untrusted input: `make fuzz`, or `python -m fuzz TARGET --inputs 1000`.

Here: `mutate.py` (hostile bytes from seeds), `run.py` (one target within bounds), `targets/` (one file a target: its seeds and
one attempt), `found/` (inputs that once broke a target; each runs again first). No package imports anything here.
"""
