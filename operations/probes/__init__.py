"""Probes: small requests to what the lab needs, sent every ten minutes; their outcomes, success ratios and latencies.

A probe changes nothing that anyone else reads. How a cluster is probed belongs in `resources`.
"""
