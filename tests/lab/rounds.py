"""Errors after which a test controller tries its round again; any other error is a bug of the controller."""

import requests

from resources.cluster import ApiError


def is_of_the_world(error: ApiError | requests.RequestException) -> bool:
    """Whether the server was away, or an object went or changed between being listed and being written."""
    return not isinstance(error, ApiError) or error.status >= 500 or error.status in (404, 409)
