"""The broker over HTTP: OpenAI's paths for clients, whose requests wait for an answer, and `/broker/...` for workers.

A client's request is written down before anything else. Its connection then waits; when it breaks, or the broker dies, the
request stays and so does its answer, and the same request sent again gets it. Which are "the same": what `Idempotency-Key`
says, else equal path and body where these decide the answer (temperature 0, a seed, nothing to generate).
"""

import asyncio
import hashlib
import json
import logging
import time
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from evals.broker.queue import Answer, FullError, WorkQueue
from evals.serve.refusals import Guard, RequestError, read_body, refuse

log = logging.getLogger("evals.broker")
PASSED_ON = ("/v1/completions", "/v1/chat/completions", "/v1/models", "/tokenizer_info", "/tokenize", "/detokenize")
SWEEP_SECONDS, PRUNE_SECONDS = 0.2, 60.0
LONGEST_POLL = 20.0
MOST_LEASES = 256


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
        document = parse_body(body) if request.method == "POST" else {}
        if document.get("stream"):
            raise RequestError(
                400, "stream is true; answers through a broker are recorded whole: only false is allowed", "stream"
            )
        key = request.headers.get("idempotency-key") or key_of(request.method, request.url.path, document)
        model = document.get("model") if isinstance(document.get("model"), str) else None
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.waiting[key].append(answer)
        try:
            put = (key, request.method, request.url.path, body, model, time.time())
            recorded = await self.call(self.queue.put, *put)
            if recorded is None:
                async with self.work:
                    self.work.notify_all()
                found = await asyncio.wait_for(answer, self.answer_seconds)
            else:
                found = recorded
        except FullError as full:
            raise RequestError(429, f"{full}; try again later", code="queue_full") from full
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
        """`{worker, models, count, wait}`: up to `count` requests, after at most `wait` seconds."""
        asked = parse_body(await read_body(request))
        worker, models, count = str(asked.get("worker", "")), list(asked.get("models", [])), int(asked.get("count", 1))
        if not worker or not 1 <= count <= MOST_LEASES:
            raise RequestError(
                400, f"worker is {worker!r} and count {count}; a name and 1 to {MOST_LEASES} are allowed", "count"
            )
        end = time.monotonic() + min(float(asked.get("wait", 0.0)), LONGEST_POLL)
        while True:
            self.workers[worker] = time.time()
            found = await self.call(self.queue.lease, worker, models, count, time.time())
            left = end - time.monotonic()
            if found or left <= 0:
                break
            async with self.work:
                try:
                    await asyncio.wait_for(self.work.wait(), min(left, 1.0))
                except TimeoutError:
                    continue
        sent = [{**vars(leased), "body": leased.body.decode()} for leased in found]
        return JSONResponse({"requests": sent, "lease_seconds": self.queue.limits.lease_seconds})

    async def renew(self, request: Request) -> Response:
        """`{leases}`: the names of those that are lost."""
        leases = list(parse_body(await read_body(request)).get("leases", []))
        return JSONResponse({"lost": await self.call(self.queue.renew, leases, time.time())})

    async def finish(self, request: Request) -> Response:
        """`?key=...&status=...` with the answer as the body; `counted` is false for one that came too late."""
        key, status = request.query_params["key"], int(request.query_params["status"])
        body = bytearray()
        async for piece in request.stream():  # an answer with log-probabilities is longer than any request
            body += piece
        answer = Answer(status, bytes(body))
        counted = await self.call(self.queue.finish, key, answer, time.time())
        if counted:
            self.answered.labels(status).inc()
            self._tell(key, answer)
        else:
            self.late.inc()
        return JSONResponse({"counted": counted})

    async def give_back(self, request: Request) -> Response:
        """`{lease, used}`: a worker could not answer."""
        asked = parse_body(await read_body(request))
        await self.call(self.queue.give_back, str(asked["lease"]), used=bool(asked.get("used", True)))
        async with self.work:
            self.work.notify_all()
        return JSONResponse({})

    async def status(self, request: Request) -> Response:
        """Counts by state, and when each worker was last heard of."""
        now = time.time()
        ages = {worker: round(now - seen, 1) for worker, seen in sorted(self.workers.items())}
        return JSONResponse({"requests": await self.call(self.queue.counts), "workers_seconds_ago": ages})

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def show_metrics(self, request: Request) -> Response:
        for state, number in (await self.call(self.queue.counts)).items():
            self.open.labels(state).set(number)
        return Response(generate_latest(self.registry), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def sweep(self) -> None:
        """Leases that ran out wait again, for as long as the broker runs; what was answered long ago goes."""
        pruned = 0.0
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = time.time()
            freed, ended = await self.call(self.queue.expire, now)
            if freed:
                self.lost.inc(freed)
                log.warning("%d leases ran out; their requests wait again, %d gave up", freed, len(ended))
                async with self.work:
                    self.work.notify_all()
            for key in ended:
                answer = await self.call(self.queue.answer, key)
                assert answer is not None
                self._tell(key, answer)
            if now - pruned > PRUNE_SECONDS:
                pruned = now
                await self.call(self.queue.prune, now - self.keep_seconds)

    def _tell(self, key: str, answer: Answer) -> None:
        for future in self.waiting.get(key, []):
            if not future.done():
                future.set_result(answer)


def build_broker(queue: WorkQueue, answer_seconds: float, keep_seconds: float, api_key: str | None = None) -> Starlette:
    """The broker as an ASGI application; the queue is closed at its end."""
    broker = Broker(queue, answer_seconds, keep_seconds)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        sweeping = asyncio.create_task(broker.sweep())
        yield
        sweeping.cancel()
        await asyncio.gather(sweeping, return_exceptions=True)
        broker.thread.shutdown()
        queue.close()

    routes = [
        *(Route(path, broker.pass_on, methods=["GET", "POST"]) for path in PASSED_ON),
        Route("/broker/lease", broker.lease, methods=["POST"]),
        Route("/broker/renew", broker.renew, methods=["POST"]),
        Route("/broker/finish", broker.finish, methods=["POST"]),
        Route("/broker/give_back", broker.give_back, methods=["POST"]),
        Route("/broker/status", broker.status),
        Route("/metrics", broker.show_metrics),
        Route("/health", broker.health),
    ]
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={RequestError: refuse})
    if api_key is not None:
        app.add_middleware(Guard, key=api_key)
    return app


def parse_body(body: bytes) -> dict[str, Any]:
    """A JSON object. Raises: RequestError, 400."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError(400, f"the body is no JSON document: {error}") from error
    if not isinstance(document, dict):
        raise RequestError(400, "the body is no JSON object")
    return document


def key_of(method: str, path: str, document: dict[str, Any]) -> str:
    """Equal for requests that have equal answers; another one every time for a request that may be answered in several ways."""
    sampled = path in ("/v1/completions", "/v1/chat/completions") and document.get("max_tokens") != 0
    if method == "GET" or (sampled and document.get("temperature") != 0 and document.get("seed") is None):
        return uuid.uuid4().hex
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(f"{path}\n{canonical}".encode(), digest_size=16).hexdigest()
