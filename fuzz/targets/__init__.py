"""One file a target: `target()` gives its seeds and one attempt."""
