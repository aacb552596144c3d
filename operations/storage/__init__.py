"""What is kept and why: pins, protection, plans of a purge, the purge itself, restore and settlement.

How a stage retains its own checkpoints is the trainer's; rules of buckets are `lineage.storage.lifecycle`.
"""
