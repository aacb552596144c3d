"""The HTTP routes. Handlers run in the event loop; slow work (parsing, tokenizing) runs in worker threads."""

import asyncio
import datetime
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.forms import parse
from serving.refusals import CLIENT_LEFT, MODEL_VERSION_HEADER, Guard, RequestError, read_body, refuse, refuse_unrouted
from serving.server.answers import Choice, Kind, answer, prompt_of, usage
from serving.server.engine import Engine, EngineSettings, NoRoomError
from serving.server.generation_requests import chat_asks, completion_asks
from serving.server.loaded_model import LoadedModel
from serving.server.metrics import Metrics
from serving.server.protocol import ChatRequest, CompletionRequest, DetokenizeRequest, Sampled, TokenizeRequest
from serving.server.scheduler import MOST_WAITING, Deliver, FaultError, QueueFullError, Scheduler, StoppedError
from serving.server.sequence import Delta, GenerationRequest, Sequence
from serving.server.streams import events_of, gather, while_connected
from serving.server.text import text_tokens, token_text
from serving.server.weights import Reloading
from serving.tokenization import limit_memory

PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"


@dataclass
class Server:
    """State that the handlers share. `reloading` is None if weights cannot be replaced."""

    served: LoadedModel
    scheduler: Scheduler
    metrics: Metrics
    reloading: Reloading | None = None

    async def models(self, request: Request) -> Response:
        """List the served model with its data version; 503 after a failure, so that clients stop sending requests."""
        if not self.scheduler.alive:
            raise RequestError(503, f"the server has stopped: {self.scheduler.fault or 'it is shutting down'}")
        return JSONResponse({"object": "list", "data": [self._card()]})

    async def model(self, request: Request) -> Response:
        """The entry of `/v1/models` for one model."""
        name = request.path_params["name"]
        if name != self.served.name:
            raise RequestError(404, f"model is {name!r}; allowed: {self.served.name!r}", "model", "model_not_found")
        return JSONResponse(self._card())

    def _card(self) -> dict[str, Any]:
        created = int(datetime.datetime.fromisoformat(self.served.created).timestamp())
        card = {"id": self.served.name, "object": "model", "created": created, "owned_by": "marin-lab"}
        facts = {"max_model_len": self.served.config.max_seq_len, "data_version": self.served.weights.fingerprint}
        return card | facts | {"weights_version": self.served.weights.short()}

    async def health(self, request: Request) -> Response:
        if self.scheduler.alive:
            return JSONResponse({"status": "ok"})
        return JSONResponse({"status": "stopped", "reason": repr(self.scheduler.fault)}, 503)

    async def show_metrics(self, request: Request) -> Response:
        return Response(self.metrics.text(), headers={"content-type": PROMETHEUS_TEXT})

    async def tokenizer_info(self, request: Request) -> Response:
        tokens = {"bos_token": self.served.start_token, "eos_token": self.served.end_token}
        return JSONResponse({name: token_text(self.served.tokenizer, token) for name, token in tokens.items()})

    async def tokenize(self, request: Request) -> Response:
        form = await run_in_threadpool(parse, TokenizeRequest, await read_body(request))
        ids = await run_in_threadpool(text_tokens, self.served.tokenizer, form.prompt)
        ids = [self.served.start_token] * form.add_special_tokens + ids
        return JSONResponse({"tokens": ids, "count": len(ids), "max_model_len": self.served.config.max_seq_len})

    async def detokenize(self, request: Request) -> Response:
        form = await run_in_threadpool(parse, DetokenizeRequest, await read_body(request))
        size = self.served.config.vocab_size
        wrong = [token for token in form.tokens if not 0 <= token < size]
        if wrong:
            raise RequestError(400, f"tokens has {wrong[0]}; 0 to {size - 1} are allowed", "tokens")
        return JSONResponse({"prompt": self.served.tokenizer.decode(form.tokens, skip_special_tokens=False)})

    async def weights(self, request: Request) -> Response:
        """Replace the weights; answers when the new ones are in use."""
        if self.reloading is None:
            raise RequestError(
                403,
                "this server cannot replace weights: it has an API key and no admin key (--admin-key-file)",
                code="not_admin",
            )
        self.reloading.check(request)
        body = await read_body(request)
        async with self.reloading.one_at_a_time:
            self.served, document = await self.reloading.replace(body, self.served, self.scheduler)
        return JSONResponse(document)

    async def completions(self, request: Request) -> Response:
        form = await run_in_threadpool(parse, CompletionRequest, await read_body(request))
        return await self._answer(request, "completion", form, await run_in_threadpool(completion_asks, form, self.served))

    async def chat(self, request: Request) -> Response:
        form = await run_in_threadpool(parse, ChatRequest, await read_body(request))
        return await self._answer(request, "chat", form, await run_in_threadpool(chat_asks, form, self.served))

    async def _answer(self, request: Request, kind: Kind, form: Sampled, asks: list[GenerationRequest]) -> Response:
        options = form.stream_options
        if options is not None and not form.stream:
            raise RequestError(400, "stream_options is given; it is allowed with stream: true only", "stream_options")
        head = {"id": f"{kind}-{uuid.uuid4().hex}", "created": int(time.time()), "model": self.served.name}
        choices = [Choice(kind, i, ask, self.served.tokenizer) for i, ask in enumerate(asks)]
        deltas = self._deltas(asks)
        if form.stream:
            events = events_of(kind, head, choices, deltas, options is not None and options.include_usage)
            return StreamingResponse(events, media_type="text/event-stream", headers={"cache-control": "no-cache"})
        if not await while_connected(request, gather(choices, deltas)):
            return Response(status_code=CLIENT_LEFT)
        weights = choices[0].weights
        version = {} if weights.fingerprint is None else {MODEL_VERSION_HEADER: weights.fingerprint}
        document = answer(kind, head, [choice.complete() for choice in choices], weights, stream=False)
        return JSONResponse({**document, **prompt_of(kind, choices), "usage": usage(choices)}, headers=version)

    def _deltas(self, asks: list[GenerationRequest]) -> AsyncIterator[tuple[int, Delta]]:
        """Submit the requests (a full queue answers 429), and yield deltas as they come."""
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[tuple[int, Delta | BaseException]]()

        def deliver(index: int) -> Deliver:
            def from_scheduler(delta: Delta | BaseException) -> None:
                loop.call_soon_threadsafe(queue.put_nowait, (index, delta))

            return from_scheduler

        try:
            sequences = self.scheduler.submit(asks, deliver)
        except QueueFullError as full:
            raise RequestError(429, f"{full}; try again later", code="queue_full") from full
        except NoRoomError as room:
            raise RequestError(400, str(room), "max_tokens", "too_long") from room
        except StoppedError as stopped:
            raise RequestError(503, str(stopped)) from stopped
        return self._drain(sequences, queue)

    async def _drain(
        self, sequences: list[Sequence], queue: "asyncio.Queue[tuple[int, Delta | BaseException]]"
    ) -> AsyncIterator[tuple[int, Delta]]:
        unfinished = len(sequences)
        try:
            while unfinished:
                index, delta = await queue.get()
                if isinstance(delta, FaultError):
                    raise RequestError(500, str(delta), code="scheduler_fault") from delta
                if isinstance(delta, BaseException):
                    raise RequestError(503, str(delta)) from delta
                unfinished -= delta.finish is not None
                yield index, delta
        finally:
            if unfinished:
                self.scheduler.cancel(sequences)


def build_app(
    served: LoadedModel,
    settings: EngineSettings,
    max_waiting: int = MOST_WAITING,
    api_key: str | None = None,
    on_fault: Callable[[BaseException], None] = lambda fault: None,
    reloading: Reloading | None = None,
) -> Starlette:
    """Build the server as an ASGI application; the scheduler's thread lives as long as the application.

    `on_fault` is called in that thread when the scheduler fails. After that the server answers no request. `reloading`: how
    weights are replaced; None: never.
    """
    limit_memory(served.tokenizer)
    metrics = Metrics()
    engine = Engine(served.model, served.config, settings, served.weights)
    scheduler = Scheduler(engine, served.tokenizer, metrics, max_waiting, on_fault)
    server = Server(served, scheduler, metrics, reloading)
    routes = [
        Route("/v1/models", server.models),
        Route("/v1/models/{name:path}", server.model),
        Route("/v1/completions", server.completions, methods=["POST"]),
        Route("/v1/chat/completions", server.chat, methods=["POST"]),
        Route("/v1/weights", server.weights, methods=["POST"]),
        Route("/tokenizer_info", server.tokenizer_info),
        Route("/tokenize", server.tokenize, methods=["POST"]),
        Route("/detokenize", server.detokenize, methods=["POST"]),
        Route("/metrics", server.show_metrics),
        Route("/health", server.health),
    ]
    paths = [route.path for route in routes]

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        scheduler.start()
        yield
        await run_in_threadpool(scheduler.stop)

    handlers = {RequestError: refuse, HTTPException: refuse_unrouted(paths)}
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)
    if api_key is not None:
        app.add_middleware(Guard, key=api_key)
    app.add_middleware(_Counting, metrics=metrics, paths=frozenset(paths))
    return app


class _Counting:
    """Counts answers by path and status."""

    def __init__(self, app: ASGIApp, metrics: Metrics, paths: frozenset[str]) -> None:
        self.app, self.metrics, self.paths = app, metrics, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                path = scope["path"] if scope["path"] in self.paths else "other"
                self.metrics.answers.labels(path, message["status"]).inc()
            await send(message)

        await self.app(scope, receive, counted)
