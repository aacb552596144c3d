"""The broker over HTTP: OpenAI's paths for clients, whose requests wait for an answer, and `/broker/...` for workers.

A client's request is written down before anything else. Its connection then waits; when it breaks, or the broker dies, the
request stays and so does its answer, and the same request sent again gets it. Which are "the same": what `Idempotency-Key`
says, else equal path and body where these decide the answer (temperature 0, a seed, nothing to generate).
"""

import asyncio
import logging
import sqlite3
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from serving.broker.forms import (
    MOST_ANSWER_BYTES,
    GiveBackForm,
    LeaseForm,
    LeaveForm,
    RenewForm,
    digest_of,
    key_of,
    read_status,
)
from serving.broker.queue import Answer, FullError, OtherRequestError, OtherVersionError, Wanted, WorkQueue
from serving.broker.upkeep import Upkeep
from serving.forms import parse, parse_object
from serving.refusals import Guard, RequestError, read_body, refuse, refuse_unrouted

log = logging.getLogger("serving.broker")
PASSED_ON = ("/v1/completions", "/v1/chat/completions", "/v1/models", "/tokenizer_info", "/tokenize", "/detokenize")
UNSERVED_SECONDS, PRUNE_SECONDS = 1.0, 60.0
LONGEST_POLL = 20.0


@dataclass
class Broker:
    """What the handlers share. The queue is used from one thread; who waits for an answer is known to the event loop."""

    queue: WorkQueue
    answer_seconds: float
    keep_seconds: float
    thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "broker-queue"))
    waiting: dict[str, list[asyncio.Future[Answer]]] = field(default_factory=lambda: defaultdict(list))
    work: asyncio.Condition = field(default_factory=asyncio.Condition)
    workers: dict[str, float] = field(default_factory=dict)
    """When each was last heard of, by this process."""
    refused: float = 0.0
    pruned: float = 0.0
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __post_init__(self) -> None:
        self.answered = Counter("broker_answers", "Answers recorded.", ["status"], registry=self.registry)
        self.late = Counter("broker_late_answers", "Answers to what was answered before; not counted.", registry=self.registry)
        self.lost = Counter("broker_lost_leases", "Leases that ran out.", registry=self.registry)
        self.open = Gauge("broker_requests", "Requests on record.", ["state"], registry=self.registry)

    async def call[R](self, work: Callable[..., R], *given: Any, **named: Any) -> R:
        """A method of the queue, in its thread."""
        return await asyncio.get_running_loop().run_in_executor(self.thread, lambda: work(*given, **named))

    async def pass_on(self, request: Request) -> Response:
        """A client's request: written down, waited for, answered with what a worker's server said."""
        body = await read_body(request) if request.method == "POST" else b""
        document = parse_object(body) if request.method == "POST" else {}
        if document.get("stream"):
            raise RequestError(
                400, "stream is true; answers through a broker are recorded whole: only false is allowed", "stream"
            )
        path, method, model = request.url.path, request.method, document.get("model")
        key = key_of(method, path, document, request.headers.get("idempotency-key"))
        wanted = Wanted(key, digest_of(path, document), method, path, body, model if isinstance(model, str) else None)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.waiting[key].append(answer)
        try:
            recorded = await self.call(self.queue.put, wanted, time.time())
            if recorded is None:
                async with self.work:
                    self.work.notify_all()
                found = await asyncio.wait_for(answer, self.answer_seconds)
            else:
                found = recorded
        except FullError as full:
            raise RequestError(429, f"{full}; try again later", code="queue_full") from full
        except OtherRequestError as other:
            message = f"Idempotency-Key: {other}; a request that says something else needs a key of its own"
            raise RequestError(409, message, code="key_used") from other
        except TimeoutError as late:
            message = f"no answer in {self.answer_seconds:g} s; the request stays on record: send it again to wait for it"
            raise RequestError(504, message, code="still_waiting") from late
        finally:
            self.waiting[key].remove(answer)
            if not self.waiting[key]:
                del self.waiting[key]
        told = {"x-broker-recorded": "true" if recorded else "false"}
        return Response(found.body, found.status, told, media_type="application/json")

    async def lease(self, request: Request) -> Response:
        """Up to `count` requests, after at most `wait` seconds; 409 for a name that means other bytes elsewhere."""
        asked = parse(LeaseForm, await read_body(request))
        end, again = time.monotonic() + min(asked.wait, LONGEST_POLL), self.queue.limits.lease_seconds / 3
        said = float("-inf")
        while True:
            if time.monotonic() - said >= again:
                said = time.monotonic()
                await self._serve(asked)
            self.workers[asked.worker] = time.time()
            found = await self.call(self.queue.lease, asked.worker, asked.models, asked.count, time.time())
            left = end - time.monotonic()
            if found or left <= 0:
                break
            async with self.work:
                try:
                    await asyncio.wait_for(self.work.wait(), min(left, again, 1.0))
                except TimeoutError:
                    continue
        sent = [{**vars(leased), "body": leased.body.decode()} for leased in found]
        return JSONResponse({"requests": sent, "lease_seconds": self.queue.limits.lease_seconds})

    async def _serve(self, asked: LeaseForm) -> None:
        try:
            await self.call(self.queue.serve, asked.worker, asked.models, time.time())
        except OtherVersionError as other:
            raise RequestError(409, str(other), "models", "other_version") from other

    async def renew(self, request: Request) -> Response:
        """The names of the leases that are lost."""
        asked = parse(RenewForm, await read_body(request))
        return JSONResponse({"lost": await self.call(self.queue.renew, asked.leases, time.time())})

    async def finish(self, request: Request) -> Response:
        """`?key=...&status=...&version=...` with the answer as the body; `counted` is false for one that came too late."""
        query = request.query_params
        if "key" not in query:
            raise RequestError(400, "key is missing; that of the leased request is allowed", "key")
        key, status = query["key"], read_status(query.get("status", ""))
        answer = Answer(status, await read_body(request, MOST_ANSWER_BYTES))
        counted = await self.call(self.queue.finish, key, answer, query.get("version"), time.time())
        if counted:
            self.answered.labels(status).inc()
            self._tell(key, answer)
        else:
            self.late.inc()
        return JSONResponse({"counted": counted})

    async def give_back(self, request: Request) -> Response:
        """A worker could not answer."""
        asked = parse(GiveBackForm, await read_body(request))
        await self.call(self.queue.give_back, asked.lease, used=asked.used)
        async with self.work:
            self.work.notify_all()
        return JSONResponse({})

    async def leave(self, request: Request) -> Response:
        """A worker ends, having told all that it had to tell."""
        asked = parse(LeaveForm, await read_body(request))
        await self.call(self.queue.leave, asked.worker)
        self.workers.pop(asked.worker, None)
        async with self.work:
            self.work.notify_all()
        return JSONResponse({})

    async def status(self, request: Request) -> Response:
        """Counts by state, and when each worker was last heard of."""
        now = time.time()
        ages = {worker: round(now - seen, 1) for worker, seen in sorted(self.workers.items())}
        return JSONResponse({"requests": await self.call(self.queue.counts), "workers_seconds_ago": ages})

    async def show_metrics(self, request: Request) -> Response:
        for state, number in (await self.call(self.queue.counts)).items():
            self.open.labels(state).set(number)
        return Response(generate_latest(self.registry), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def sweep(self, now: float) -> None:
        """Leases that ran out wait again, what cannot be answered is refused; what was answered long ago goes."""
        freed, ended = await self.call(self.queue.expire, now)
        if freed:
            self.lost.inc(freed)
            log.warning("%d leases ran out; their requests wait again, %d gave up", freed, len(ended))
            async with self.work:
                self.work.notify_all()
        if now - self.refused > UNSERVED_SECONDS:
            self.refused = now
            ended += await self.call(self.queue.refuse_unserved, now)
        for key, answer in ended:
            self._tell(key, answer)
        if now - self.pruned > PRUNE_SECONDS:
            self.pruned = now
            await self.call(self.queue.prune, now - self.keep_seconds)

    def _tell(self, key: str, answer: Answer) -> None:
        for future in self.waiting.get(key, []):
            if not future.done():
                future.set_result(answer)


def build_broker(
    queue: WorkQueue,
    answer_seconds: float,
    keep_seconds: float,
    api_key: str | None = None,
    on_fault: Callable[[BaseException], None] = lambda fault: None,
) -> Starlette:
    """The broker as an ASGI application; the queue is closed at its end. `on_fault` is told when it can do its work no more."""
    broker = Broker(queue, answer_seconds, keep_seconds)
    upkeep = Upkeep(broker.sweep, on_fault)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        sweeping = asyncio.create_task(upkeep.run())
        yield
        sweeping.cancel()
        await asyncio.wait({sweeping})
        broker.thread.shutdown()
        queue.close()

    async def health(request: Request) -> Response:
        trouble = upkeep.trouble()
        return JSONResponse(
            {"status": "ok"} if trouble is None else {"status": "ill", "reason": trouble}, 503 if trouble else 200
        )

    async def refuse_storage(request: Request, error: Exception) -> Response:
        return JSONResponse(RequestError(503, f"the broker's file cannot be used now: {error}", code="storage").body(), 503)

    routes = [
        *(Route(path, broker.pass_on, methods=["GET", "POST"]) for path in PASSED_ON),
        Route("/broker/lease", broker.lease, methods=["POST"]),
        Route("/broker/renew", broker.renew, methods=["POST"]),
        Route("/broker/finish", broker.finish, methods=["POST"]),
        Route("/broker/give_back", broker.give_back, methods=["POST"]),
        Route("/broker/leave", broker.leave, methods=["POST"]),
        Route("/broker/status", broker.status),
        Route("/metrics", broker.show_metrics),
        Route("/health", health),
    ]
    unrouted = refuse_unrouted([route.path for route in routes])
    handlers = {RequestError: refuse, HTTPException: unrouted, sqlite3.OperationalError: refuse_storage}
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)
    if api_key is not None:
        app.add_middleware(Guard, key=api_key)
    return app
