"""The weekly report as an asset: one partition a week, made on Mondays at 07:00 UTC."""

import datetime
from collections.abc import Sequence

import dagster as dg

from marin_assets.alerts import campaign_runs
from marin_assets.areas import owners
from partitions.axes import FIRST_DAY
from resources.lab import Lab

REPORTS = ".operations/weekly"
"""Below the canonical store's root: `<monday>/week.html`, `.md` and `.json`."""


def weeks() -> dg.WeeklyPartitionsDefinition:
    """Return one partition for each week that has ended; its key is the Monday on which it began (UTC)."""
    return dg.WeeklyPartitionsDefinition(start_date=FIRST_DAY, day_offset=1, timezone="UTC")


def weekly_report_asset(campaigns: Sequence[str]) -> dg.AssetsDefinition:
    """Runs, spending, forecasts, contamination, storage, waivers and incidents of a week, as HTML, Markdown and JSON."""
    key = dg.AssetKey(["operations", "weekly_report"])

    @dg.asset(
        key=key,
        partitions_def=weeks(),
        group_name="operations",
        owners=owners("operations"),
        kinds={"table"},
        code_version="weekly_report/1",
    )
    def weekly_report(context: dg.AssetExecutionContext, lab: dg.ResourceParam[Lab]) -> dg.MaterializeResult:
        """Writes the week's report below the store's root."""
        from operations.alerts.incidents import read_state
        from operations.ledger.ledger import open_ledger
        from operations.reports.show import as_html, as_json, as_markdown
        from operations.reports.week import week_of
        from recipes.prices import price_table

        monday = datetime.date.fromisoformat(context.partition_key)
        today = datetime.datetime.now(datetime.UTC).date()
        ledger = open_ledger([lab.store, lab.ferry_store], price_table(), today)
        runs = {campaign: campaign_runs(context.instance, campaign) for campaign in campaigns}
        week = week_of(ledger, list(read_state(lab.store).incidents.values()), runs, monday)
        texts = {"html": as_html(week), "md": as_markdown(week), "json": as_json(week)}
        for suffix, text in texts.items():
            lab.store.storage.replace(f"{REPORTS}/{week.monday}/week.{suffix}", text.encode())
        return dg.MaterializeResult(
            metadata={
                "runs": len(week.sections["runs"]),
                "page": dg.MetadataValue.path(lab.store.storage.uri(f"{REPORTS}/{week.monday}/week.html")),
                "report": dg.MetadataValue.md(texts["md"][:20_000]),
            }
        )

    return weekly_report
