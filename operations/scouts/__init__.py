"""Scouts: nightly checks for what needs maintenance. A scout reads and reports. It changes nothing.

`reports` has the records, `ledger_scouts` the scouts that read the ledger, `store_scouts` those that read files or build again.
A finding is a recommendation. What must not wait is an alert (`operations.alerts`).
"""
