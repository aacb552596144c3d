"""Conversion between our checkpoints and published models: Hugging Face folders and GGUF files.

Downloads belong in `datakit.sources`.
"""
