"""What is kept and why: pins, protection, plans of a purge, the purge itself, restore and settlement.

Not here: which checkpoints a run keeps (the trainer decides), and rules of buckets (`lineage.storage.lifecycle`).
"""
