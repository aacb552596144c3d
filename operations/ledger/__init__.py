"""The ledger: Parquet tables over manifests, attempts, verdicts and waivers, their cost, and DuckDB over them.

What reads or shows tables for people belongs in `operations.reports`, `operations.site` or the shell.
"""
