"""What the UI shows of quality tables."""

import dagster as dg

from lineage.store import Artifact
from marin_assets.quality_pictures import rule_sets_png
from marin_assets.values import picture, records_table


def rule_sets(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """What each published set would drop, rule by rule: the first rule of the set that a document breaks."""
    drops, documents = artifact.manifest.extra["rule_sets"], int(artifact.manifest.statistics["rows_in"])
    if not drops:
        return {"rule_sets": dg.MetadataValue.text("prose rules do not judge this domain")}
    totals = {name: sum(found.values()) for name, found in drops.items()}
    rows = [
        {"set": name, "rule": reason, "documents": count, "percent": round(100 * count / documents, 2)}
        for name, found in drops.items()
        for reason, count in sorted(found.items(), key=lambda item: -item[1])
    ]
    return {
        **{f"percent_dropped/{name}": dg.MetadataValue.float(round(100 * n / documents, 2)) for name, n in totals.items()},
        "rule_sets": records_table(rows, ("set", "rule", "documents", "percent")),
        "rules_picture": picture(lambda path: rule_sets_png(drops, documents, artifact.name, path)),
    }
