"""The broker over HTTP: OpenAI's paths for clients, `/broker/...` for workers.

The broker records a client's request first; then the connection waits for the answer. If the connection breaks or the broker
dies, the request and its answer stay on record, and the same request sent again gets the answer. Two requests are the same
if they have the same `Idempotency-Key`. Without that header they are the same if path and body are equal and nothing is drawn
(temperature 0, or nothing to generate).
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
    """State that the handlers share. One thread uses the queue; the event loop serves the clients that wait."""

    queue: WorkQueue
    answer_seconds: float
    keep_seconds: float
    thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "broker-queue"))
    waiting: dict[str, list[asyncio.Future[Answer]]] = field(default_factory=lambda: defaultdict(list))
    work: asyncio.Condition = field(default_factory=asyncio.Condition)
    workers: dict[str, float] = field(default_factory=dict)
    """Monotonic time of each worker's last message to this process."""
    refused: float = 0.0
    pruned: float = 0.0
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __post_init__(self) -> None:
        self.answered = Counter("broker_answers", "Answers recorded.", ["status"], registry=self.registry)
        self.late = Counter("broker_late_answers", "Answers to requests that had one; not counted.", registry=self.registry)
        self.lost = Counter("broker_lost_leases", "Leases that ran out.", registry=self.registry)
        self.open = Gauge("broker_requests", "Requests on record.", ["state"], registry=self.registry)

    async def call[R](self, work: Callable[..., R], *given: Any, **named: Any) -> R:
        """Call a method of the queue in the queue's thread."""
        return await asyncio.get_running_loop().run_in_executor(self.thread, lambda: work(*given, **named))

    async def pass_on(self, request: Request) -> Response:
        """Record a client's request, wait for its answer, and return what a worker's server answered."""
        body = await read_body(request) if request.method == "POST" else b""
        document = parse_object(body) if request.method == "POST" else {}
        if document.get("stream"):
            raise RequestError(400, "stream is true; a broker records complete answers: only false is allowed", "stream")
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
                outcome = await asyncio.wait_for(answer, self.answer_seconds)
            else:
                outcome = recorded
        except FullError as full:
            raise RequestError(429, f"{full}; try again later", code="queue_full") from full
        except OtherRequestError as other:
            message = f"Idempotency-Key: {other}; a different request needs another key"
            raise RequestError(409, message, code="key_used") from other
        except TimeoutError as late:
            message = f"no answer in {self.answer_seconds:g} s; the request stays on record: send it again to wait for it"
            raise RequestError(504, message, code="still_waiting") from late
        finally:
            self.waiting[key].remove(answer)
            if not self.waiting[key]:
                del self.waiting[key]
        headers = {"x-broker-recorded": "true" if recorded else "false"}
        return Response(outcome.body, outcome.status, headers, media_type="application/json")

    async def lease(self, request: Request) -> Response:
        """Lease up to `count` requests within `wait` seconds; 409 if another worker serves other bytes under the same name."""
        form = parse(LeaseForm, await read_body(request))
        end, again = time.monotonic() + min(form.wait, LONGEST_POLL), self.queue.limits.lease_seconds / 3
        reported = float("-inf")
        while True:
            if time.monotonic() - reported >= again:
                reported = time.monotonic()
                await self._serve(form)
            self.workers[form.worker] = time.time()
            requests = await self.call(self.queue.lease, form.worker, form.models, form.count, time.time())
            left = end - time.monotonic()
            if requests or left <= 0:
                break
            async with self.work:
                try:
                    await asyncio.wait_for(self.work.wait(), min(left, again, 1.0))
                except TimeoutError:
                    continue
        sent = [{**vars(leased), "body": leased.body.decode()} for leased in requests]
        return JSONResponse({"requests": sent, "lease_seconds": self.queue.limits.lease_seconds})

    async def _serve(self, form: LeaseForm) -> None:
        try:
            await self.call(self.queue.serve, form.worker, form.models, time.time())
        except OtherVersionError as other:
            raise RequestError(409, str(other), "models", "other_version") from other

    async def renew(self, request: Request) -> Response:
        """Renew leases; returns the names of those that are lost."""
        form = parse(RenewForm, await read_body(request))
        return JSONResponse({"lost": await self.call(self.queue.renew, form.leases, time.time())})

    async def finish(self, request: Request) -> Response:
        """Record an answer: `?key=...&status=...&version=...`, the answer as body; `counted` is false for a late one."""
        query = request.query_params
        if "key" not in query:
            raise RequestError(400, "key is missing; give the key of the leased request", "key")
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
        """Return a lease whose request the worker could not answer."""
        form = parse(GiveBackForm, await read_body(request))
        await self.call(self.queue.give_back, form.lease, used=form.used)
        async with self.work:
            self.work.notify_all()
        return JSONResponse({})

    async def leave(self, request: Request) -> Response:
        """Sign a worker off after it has sent all its answers."""
        form = parse(LeaveForm, await read_body(request))
        await self.call(self.queue.leave, form.worker)
        self.workers.pop(form.worker, None)
        async with self.work:
            self.work.notify_all()
        return JSONResponse({})

    async def status(self, request: Request) -> Response:
        """Return the counts by state, and seconds since each worker's last message."""
        now = time.time()
        ages = {worker: round(now - seen, 1) for worker, seen in sorted(self.workers.items())}
        return JSONResponse({"requests": await self.call(self.queue.counts), "workers_seconds_ago": ages})

    async def show_metrics(self, request: Request) -> Response:
        for state, number in (await self.call(self.queue.counts)).items():
            self.open.labels(state).set(number)
        return Response(generate_latest(self.registry), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def sweep(self, now: float) -> None:
        """Requeue expired leases, refuse requests that no worker can answer, and delete old answers."""
        freed, ended = await self.call(self.queue.expire, now)
        if freed:
            self.lost.inc(freed)
            log.warning("%d leases expired and their requests wait again; %d requests failed", freed, len(ended))
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
    """Build the broker as an ASGI application, which closes the queue at its end.

    `on_fault` is called when the broker cannot continue.
    """
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
        return JSONResponse(RequestError(503, f"the broker's file is unavailable: {error}", code="storage").body(), 503)

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
