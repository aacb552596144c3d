"""The asset that reports what storage holds and what a month of it costs (`operations.storage.report`)."""

import datetime
import json

import dagster as dg

from marin_assets.areas import owners
from marin_assets.values import records_table
from resources.lab import Lab

COLUMNS = ("store", "prefix", "owner", "storage_class", "age", "artifacts", "bytes", "last_read", "dollars_a_month")
PRICED = "every_class_has_a_price"


def storage_report_asset() -> dg.AssetsDefinition:
    """Bytes by prefix, owner, storage class and age, when they were last read, and dollars a month."""
    key = dg.AssetKey(["operations", "storage_report"])

    @dg.asset(
        key=key,
        group_name="operations",
        owners=owners("operations"),
        kinds={"table"},
        code_version="storage_report/1",
        check_specs=[dg.AssetCheckSpec(PRICED, asset=key, description="recipes/prices.py has a price of each storage class")],
    )
    def storage_report(lab: dg.ResourceParam[Lab]) -> dg.MaterializeResult:
        """Lists the roots and adds up what they hold; deletes nothing."""
        from operations.ledger.ledger import open_ledger
        from operations.ledger.prices import total
        from operations.ledger.storage_days import FOLDER
        from operations.storage.report import storage_report as report
        from recipes.prices import price_table

        today = datetime.datetime.now(datetime.UTC).date()
        stores, prices = [lab.store, lab.ferry_store], price_table()
        rows = report(stores, open_ledger(stores, prices, today), prices, today).to_dicts()
        text = json.dumps(rows, indent=1, ensure_ascii=False, default=str) + "\n"
        lab.store.storage.replace(f"{FOLDER}/{today}.json", text.encode())
        unpriced = sorted({row["unpriced"] for row in rows} - {""})
        dollars = total([row["dollars_a_month"] for row in rows if row["dollars_a_month"] is not None])
        shown = [
            {**row, "dollars_a_month": str(row["dollars_a_month"] or ""), "last_read": row["last_read"] or ""} for row in rows
        ]
        return dg.MaterializeResult(
            metadata={
                "bytes": sum(row["bytes"] for row in rows),
                "dollars_a_month": str(dollars),
                "table": records_table(shown, COLUMNS),
                "report": dg.MetadataValue.path(lab.store.storage.uri(f"{FOLDER}/{today}.json")),
            },
            check_results=[
                dg.AssetCheckResult(
                    check_name=PRICED,
                    passed=not unpriced,
                    severity=dg.AssetCheckSeverity.WARN,
                    description="; ".join(unpriced) or "all are priced",
                )
            ],
        )

    return storage_report
