"""Turn deltas into one answer or into server-sent events while the client is connected."""

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from starlette.requests import Request

from serving.refusals import RequestError
from serving.server.answers import Choice, Kind, answer, prompt_of, usage
from serving.server.sequence import Delta


async def gather(choices: list[Choice], deltas: AsyncIterator[tuple[int, Delta]]) -> None:
    async for index, delta in deltas:
        choices[index].take(delta)


async def while_connected(request: Request, work: Coroutine[Any, Any, None]) -> bool:
    """Do the work; if the client disconnects, cancel it and return False."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnected(request))
    await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
    done = working.done()
    (leaving if done else working).cancel()
    await asyncio.gather(leaving if done else working, return_exceptions=True)
    if done:
        working.result()
    return done


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def events_of(
    kind: Kind, head: dict[str, Any], choices: list[Choice], deltas: AsyncIterator[tuple[int, Delta]], with_usage: bool
) -> AsyncIterator[str]:
    """Yield server-sent events, the last one `[DONE]`; a failure is an event with an `error`."""
    write = functools.partial(json.dumps, ensure_ascii=False, separators=(",", ":"))
    opening = prompt_of(kind, choices)
    try:
        async for index, delta in deltas:
            choices[index].take(delta)
            event = answer(kind, head, [choices[index].event(delta)], delta.weights, stream=True) | opening
            yield f"data: {write(event)}\n\n"
            opening = {}
    except RequestError as error:
        yield f"data: {write(error.body())}\n\n"
        return
    if with_usage:
        last = answer(kind, head, [], choices[0].weights, stream=True)
        yield f"data: {write({**last, 'usage': usage(choices)})}\n\n"
    yield "data: [DONE]\n\n"
