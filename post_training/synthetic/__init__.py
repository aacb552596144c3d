"""Synthetic data: completions of a teacher behind a URL, what a verifier or a judge accepts, and where every row came from."""
