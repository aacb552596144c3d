"""Lifecycle rules of a bucket: delete by age below some prefixes, and keep the rules of others.

The lab's own expiry (`jobs/upkeep.py`) deletes an artifact's manifest first and then its data. A bucket deletes
objects one by one, so its rule waits a day longer and only deletes what the lab could not delete.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from lineage.storage.gs import BucketFiles
from lineage.storage.root import Storage

GRACE_DAYS = 1
type Rule = dict[str, Any]


def ttl_rules(root: str, days: Mapping[str, int]) -> list[Rule]:
    """Return a rule for every folder below a `gs://` root whose objects expire: store and folder -> days.

    A rule names folders of artifacts, never a whole store, because a store also has records that are kept for ever
    (`.operations`, `.trust`). Raises: ValueError for a prefix without a folder.
    """
    inside = BucketFiles(root).prefix
    if whole := [prefix for prefix in days if "/" not in prefix]:
        raise ValueError(f"a rule for the whole store {whole[0]} would delete its records; name a folder: {whole[0]}/ferry")
    return [
        {"action": {"type": "Delete"}, "condition": {"age": age + GRACE_DAYS, "matchesPrefix": [f"{inside}{prefix}/"]}}
        for prefix, age in sorted(days.items())
    ]


def merged(existing: Sequence[Rule], ours: Sequence[Rule]) -> list[Rule]:
    """Return the rules of others unchanged, then ours in place of our earlier ones for the same folders or whole stores."""
    prefixes = {prefix for rule in ours for prefix in rule["condition"]["matchesPrefix"]}
    prefixes |= {f"{prefix.rstrip('/').rpartition('/')[0]}/" for prefix in prefixes}  # rules of before 2026-11-26
    return [*(rule for rule in existing if not _is_ours(rule, prefixes)), *ours]


def _is_ours(rule: Rule, prefixes: Collection[str]) -> bool:
    """Whether `ttl_rules` wrote a rule: it deletes by age alone, and only below prefixes that are ours."""
    condition = rule.get("condition", {})
    return (
        rule.get("action") == {"type": "Delete"}
        and condition.keys() == {"age", "matchesPrefix"}
        and set(condition["matchesPrefix"]) <= set(prefixes)
    )


def apply(root: str, ours: Sequence[Rule]) -> list[Rule]:
    """Write rules to a root's bucket if nobody changed it meanwhile. Returns all rules that it has now."""
    files = Storage(root).files
    if not isinstance(files, BucketFiles):
        raise ValueError(f"{root} is no gs:// root; only buckets have lifecycle rules")
    files.bucket.reload()
    rules = merged(list(files.bucket.lifecycle_rules), ours)
    files.bucket.lifecycle_rules = rules
    files.bucket.patch(if_metageneration_match=files.bucket.metageneration)
    return rules
