"""`POST /v1/weights`: replace the weights of a running server by those of another checkpoint of the same model.

The folder is opened as at the start of a server. Requests that have begun finish with the old weights. The others wait for the
new ones. So no answer mixes two versions.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import jax
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from lineage.trust.gate import GateError
from serving.forms import Strict, parse
from serving.refusals import RequestError, is_loopback
from serving.server.loaded_model import LoadedModel
from serving.server.scheduler import Scheduler, StoppedError

log = logging.getLogger("serving.server")
ADMIN_KEY_HEADER = "x-admin-key"


class WeightsForm(Strict):
    """`POST /v1/weights`."""

    folder: str = Field(min_length=1)
    """Folder of a checkpoint (with its manifest) or in Hugging Face's format, on the server's machine."""
    digest: str = Field(min_length=1)
    """The digest that the weights must have: the checkpoint's data version, or the `weights_version` of a folder."""


@dataclass
class Reloading:
    """How weights are replaced, and who may do it."""

    open: Callable[[Path], LoadedModel]
    """Opens a folder as the server's own was opened. Raises: ValueError, GateError, OSError."""
    key: str | None = None
    """Key that the header `x-admin-key` must have. None: clients of this machine need no key."""
    one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)

    def check(self, request: Request) -> None:
        """Check that the sender may replace weights. Raises: RequestError, 403.

        The content type stops web pages in a browser on this machine: it is not sent to another origin without asking.
        """
        if request.headers.get("content-type") != "application/json":
            raise RequestError(415, "the content type must be application/json")
        given = request.headers.get(ADMIN_KEY_HEADER, "").encode()
        allowed = secrets.compare_digest(given, self.key.encode()) if self.key is not None else _is_local(request)
        if not allowed:
            needed = f"send the admin key in {ADMIN_KEY_HEADER}" if self.key is not None else "only this machine may send it"
            raise RequestError(403, f"weights may not be replaced by this sender; {needed}", code="not_admin")

    async def replace(self, body: bytes, current: LoadedModel, scheduler: Scheduler) -> tuple[LoadedModel, dict[str, Any]]:
        """Replace the weights; returns the model with them, and the answer.

        Raises: RequestError naming why they do not fit: 400, 409 for another digest, 503 if the scheduler has stopped.
        """
        form, begun = parse(WeightsForm, body), time.monotonic()
        new = await run_in_threadpool(self._opened, form, current)
        opened = time.monotonic()
        try:
            await asyncio.wrap_future(scheduler.swap(new.model, new.weights))
        except StoppedError as stopped:
            raise RequestError(503, str(stopped)) from stopped
        log.info("weights replaced: %s, then %s (step %s)", current.weights.digest, new.weights.digest, new.weights.step)
        times = {"open_seconds": round(opened - begun, 3), "drain_seconds": round(time.monotonic() - opened, 3)}
        versions = {"weights_version": new.weights.short(), "previous": current.weights.short()}
        return new, {"object": "weights", **versions, **times}

    def _opened(self, form: WeightsForm, current: LoadedModel) -> LoadedModel:
        try:
            new = self.open(Path(form.folder))
        except (ValueError, GateError, OSError) as error:
            raise RequestError(400, f"{form.folder} cannot be served: {error}", "folder", "weights_refused") from error
        if new.weights.digest != form.digest:
            raise RequestError(
                409, f"{form.folder} has the digest {new.weights.digest}; {form.digest} is expected", "digest", "weights_digest"
            )
        check_same_model(current, new)
        return replace(new, name=current.name, tokenizer=current.tokenizer, chat_template=current.chat_template)


def check_same_model(current: LoadedModel, new: LoadedModel) -> None:
    """Check that only weights differ. Raises: RequestError, 400, naming the field of the model or the part of the tokenizer."""
    for one in fields(current.config):
        here, there = getattr(current.config, one.name), getattr(new.config, one.name, "no such field")
        if here != there:
            message = f"the new model has {one.name} {there!r}, the served one {here!r}; only weights may differ"
            raise RequestError(400, message, "folder", "weights_shape")
    if type(current.config) is not type(new.config) or _shapes(current) != _shapes(new):
        message = "the new model has arrays of other names, shapes or types than the served one; only weights may differ"
        raise RequestError(400, message, "folder", "weights_shape")
    for name, part in _TOKENIZER.items():
        if part(current) != part(new):
            message = f"the new model has another {name} than the served one; only weights may differ"
            raise RequestError(400, message, "folder", "weights_tokenizer")


_TOKENIZER: dict[str, Callable[[LoadedModel], object]] = {
    "tokenizer": lambda model: model.tokenizer.to_str(),
    "opening token": lambda model: model.start_token,
    "end token": lambda model: (model.end_token, model.end_tokens),
    "chat template": lambda model: model.chat_template,
}


def _shapes(model: LoadedModel) -> object:
    leaves, structure = jax.tree.flatten(model.model)
    return structure, [(leaf.shape, leaf.dtype) for leaf in leaves]


def _is_local(request: Request) -> bool:
    return request.client is not None and is_loopback(request.client.host)
