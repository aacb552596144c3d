"""The asset that appends what the stores hold to the transparency log, daily."""

import os

import dagster as dg

from lineage.signing.keys import signer_from
from lineage.signing.log import append, log_of
from lineage.signing.policy import policy_from
from marin_assets.areas import owners
from resources.lab import Lab


def transparency_log_asset() -> dg.AssetsDefinition:
    """Return the asset whose metadata has the size and the root of each store's log, which published cards name."""

    @dg.asset(
        key=["operations", "transparency_log"],
        group_name="operations",
        owners=owners("operations"),
        kinds={"table"},
        code_version="transparency_log/1",
    )
    def transparency_log(context: dg.AssetExecutionContext, lab: dg.ResourceParam[Lab]) -> dg.MaterializeResult:
        """Appends every manifest and verdict to the log that `lab.yaml` names, and signs the new Merkle root."""
        policy, signer = policy_from(os.environ), signer_from(os.environ)
        metadata: dict[str, str | int] = {"policy": str(policy)}
        for store in (lab.store, lab.ferry_store):
            where = log_of(policy, store.storage)
            if where is None or signer is None:
                context.log.warning(
                    f"nothing is logged of {store.root}: {'no key signs' if where else 'the policy names no log'}"
                )
                continue
            view = append(where, store.storage, signer, policy)
            name = where.root.rpartition("/")[2]
            metadata |= {f"{name}_entries": view.head.size, f"{name}_root": view.head.root}
        return dg.MaterializeResult(metadata=metadata)

    return transparency_log
