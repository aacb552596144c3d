"""Lifecycle rules of a bucket: what may be deleted by age, written out, and applied without losing rules that are not ours.

The lab's own expiry (`operations/ferry_expiry`) deletes an artifact's manifest first and then its data. A bucket deletes
objects one by one, so its rule waits a day longer and only catches what the lab could not delete.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from lineage.storage import Storage
from lineage.storage_gs import BucketFiles

GRACE_DAYS = 1
type Rule = dict[str, Any]


def ttl_rules(root: str, days: Mapping[str, int]) -> list[Rule]:
    """A rule for every prefix below a `gs://` root that holds what may go after so many days."""
    inside = BucketFiles(root).prefix
    return [
        {"action": {"type": "Delete"}, "condition": {"age": age + GRACE_DAYS, "matchesPrefix": [f"{inside}{prefix}/"]}}
        for prefix, age in sorted(days.items())
    ]


def merged(existing: Sequence[Rule], ours: Sequence[Rule]) -> list[Rule]:
    """Rules of others, as they are, then ours in the place of those for the same prefixes."""
    prefixes = {prefix for rule in ours for prefix in rule["condition"]["matchesPrefix"]}
    others = [rule for rule in existing if not prefixes & set(rule.get("condition", {}).get("matchesPrefix", ()))]
    return [*others, *ours]


def apply(root: str, ours: Sequence[Rule]) -> list[Rule]:
    """Write rules to a root's bucket, only if nobody changed it meanwhile; all rules that it has now."""
    files = Storage(root).files
    if not isinstance(files, BucketFiles):
        raise ValueError(f"{root} is no gs:// root; only buckets have lifecycle rules")
    files.bucket.reload()
    rules = merged(list(files.bucket.lifecycle_rules), ours)
    files.bucket.lifecycle_rules = rules
    files.bucket.patch(if_metageneration_match=files.bucket.metageneration)
    return rules
