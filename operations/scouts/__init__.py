"""Scouts: nightly looks for what rots. A scout reads and reports; it edits nothing, and its findings stand until they are gone.

`reports` holds the records, `ledger_scouts` what the ledger shows, `store_scouts` what needs files or a rebuild. What a scout
finds is a recommendation; what must not wait is an alert (`operations.alerts`).
"""
