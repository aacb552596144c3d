"""Counters of the server for `/metrics` (Prometheus text)."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from serving.server.versions import WeightsVersion


class Metrics:
    """Counters of one server in a separate registry, so that two servers in one process do not share them."""

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self.registry = registry
        self.answers = Counter("serve_answers", "HTTP answers.", ["path", "status"], registry=registry)
        self.prompt_tokens = Counter("serve_prompt_tokens", "Prompt tokens put into a cache.", registry=registry)
        self.reused_tokens = Counter(
            "serve_prompt_tokens_reused", "Prompt tokens taken from the prefix cache.", registry=registry
        )
        self.generated_tokens = Counter("serve_generated_tokens", "Tokens generated.", registry=registry)
        self.cancelled = Counter("serve_cancelled_sequences", "Sequences whose client went away.", registry=registry)
        self.waiting = Gauge("serve_waiting_sequences", "Sequences that wait for a row.", registry=registry)
        self.active = Gauge("serve_active_sequences", "Sequences that hold a row.", registry=registry)
        self.prefix_bytes = Gauge("serve_prefix_cache_bytes", "Bytes of reusable prompt blocks.", registry=registry)
        self.weights = Gauge("serve_weights", "1 for the weights that answer.", ["digest", "step"], registry=registry)
        self.reloads = Counter("serve_weights_loaded", "Weights put in, the first ones included.", registry=registry)
        sizes = (1, 2, 4, 8, 16, 32, 64)
        self.decode_rows = Histogram("serve_decode_rows", "Rows in use in a decode step.", registry=registry, buckets=sizes)
        self.first_token = Histogram("serve_first_token_seconds", "From submission to the first token.", registry=registry)

    def replaced(self, weights: WeightsVersion) -> None:
        """Report other weights."""
        self.weights.clear()
        self.weights.labels(weights.digest or "unknown", "unknown" if weights.step is None else weights.step).set(1)
        self.reloads.inc()

    def text(self) -> bytes:
        """Prometheus' text format, version 0.0.4."""
        return generate_latest(self.registry)
