"""Signatures that travel with artifacts: keys, DSSE envelopes over in-toto statements, the policy, and the Merkle log.

What belongs here: how a manifest, a verdict or a waiver is signed, whose signature counts, and how the present state is
distinguished from older ones. What judges artifacts is `lineage.trust`; files in the forms of other standards are `standards`.
"""
