"""What the origin of a source has today, beside what the source pins. Nothing is fetched but listings.

A moved branch is no fault: the pin holds. A person decides whether to follow it.
"""

from dataclasses import dataclass

import httpx2
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError

from datakit.sources.download import RegistryUnreachableError
from datakit.sources.hub import DATASET, refusal
from datakit.sources.pypi import newest_version
from datakit.sources.source import HubFiles, Loader, PypiFiles, Unverified


@dataclass(frozen=True)
class Upstream:
    """The pinned revision of a source, and the one that its origin has now."""

    pinned: str
    current: str

    @property
    def has_moved(self) -> bool:
        return not self.current.startswith(self.pinned)


def upstream_of(loader: Loader) -> Upstream | None:
    """Return both revisions of a loader whose origin has revisions, else None. An unverified pin counts as no pin.

    Raises: RegistryUnreachableError if the origin does not answer; ValueError if it refuses or has no such project.
    """
    if isinstance(loader, HubFiles) and not isinstance(loader.revision, Unverified):
        api = HfApi()
        try:
            return Upstream(loader.revision.sha, str(api.dataset_info(loader.repository, revision="main").sha))
        except HfHubHTTPError as error:
            raise refusal(f"hub {DATASET} {loader.repository}", error) from error
        except httpx2.TransportError as error:
            raise RegistryUnreachableError(
                f"hub {DATASET} {loader.repository}: {api.endpoint} does not answer ({error})"
            ) from error
    if isinstance(loader, PypiFiles):
        return Upstream(loader.pin.version, newest_version(loader.pin.package))
    return None
