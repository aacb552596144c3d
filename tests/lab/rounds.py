"""Errors after which a test controller tries its round again; any other error is a bug of the controller."""

import requests

from resources.cluster import ApiError


def is_of_the_world(error: ApiError | requests.RequestException) -> bool:
    """Return whether the server was away, or an object was deleted or changed between its listing and its write."""
    return not isinstance(error, ApiError) or error.status >= 500 or error.status in (404, 409)
