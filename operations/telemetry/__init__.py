"""Telemetry: the ledger as Prometheus metrics, and attempts as OpenTelemetry spans. Both are made only from the stores."""
