"""Alerts: findings become incidents, incidents become messages, and an outbox delivers them.

A channel is where messages go. What counts as broken is in `conditions`; docs/runbook.md says what to do about each kind.
"""
