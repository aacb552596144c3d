"""What artifacts say of themselves in the forms of other standards, read from manifests alone.

What belongs here: Hugging Face cards, Croissant, SPDX 3, OpenLineage. Signatures and their formats are `lineage.signing`; pages
about sources in our own form are `datakit.cards`.
"""
