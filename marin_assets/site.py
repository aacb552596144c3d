"""The lab's public site as an asset: static pages in a folder or a bucket (`operations.site`)."""

import datetime
import os
from collections.abc import Mapping, Sequence

import dagster as dg

from marin_assets.areas import owners
from marin_assets.outcomes import outcomes
from resources.lab import Lab

SITE = "MARIN_SITE"
"""Variable that says where the pages go: a folder or gs://BUCKET/FOLDER. Without it they lie below the store's root."""
FOLDER = ".operations/site"


def site_asset(campaigns: Sequence[str]) -> dg.AssetsDefinition:
    """Every run, checkpoint, corpus, source, suite, forecast, sweep and audit as a page, with the pages that list them."""
    key = dg.AssetKey(["operations", "site"])

    @dg.asset(
        key=key,
        group_name="operations",
        owners=owners("operations"),
        kinds={"table"},
        code_version="site/1",
    )
    def site(context: dg.AssetExecutionContext, lab: dg.ResourceParam[Lab]) -> dg.MaterializeResult:
        """Writes the pages whose content has changed, and deletes those of what is gone."""
        from operations.ledger.ledger import open_ledger
        from operations.site.build import build_site
        from recipes.prices import price_table

        stores = [lab.store, lab.ferry_store]
        ledger = open_ledger(stores, price_table(), datetime.datetime.now(datetime.UTC).date())
        into = os.environ.get(SITE) or lab.store.storage.uri(FOLDER)
        written = build_site(into, stores, ledger, pass_rates(context.instance, campaigns))
        for what, why in written.unreadable.items():
            context.log.warning(f"{what} could not be read: {why}")
        return dg.MaterializeResult(
            metadata={
                "pages": written.pages,
                "written": written.written,
                "deleted": written.deleted,
                "unreadable": len(written.unreadable),
                "site": dg.MetadataValue.path(f"{into}/index.html"),
            }
        )

    return site


def pass_rates(instance: dg.DagsterInstance, campaigns: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
    """Return the runs that ended, and those that passed, of each campaign."""
    ended = {name: [each for each in outcomes(instance, name) if each.status != "running"] for name in campaigns}
    return {name: {"runs": len(runs), "passed": sum(run.status == "passed" for run in runs)} for name, runs in ended.items()}
