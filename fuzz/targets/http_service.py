"""The model server's application: any body on any of its paths gets an answer below 500, which is JSON."""

import asyncio
import json
from pathlib import Path

import equinox as eqx
import jax
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from fuzz.run import Target
from serving.server.app import build_app
from serving.server.chat import ChatTemplate
from serving.server.engine import EngineSettings
from serving.server.loaded_model import LoadedModel
from trainer.model.build import init_model
from trainer.spec.llama import LlamaConfig

PATHS = ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize", "/v1/models/small", "/nowhere", "/metrics")
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
MODEL = LlamaConfig(vocab_size=257, hidden_dim=8, intermediate_dim=8, num_layers=1, num_heads=2, num_kv_heads=1, max_seq_len=32)


class BrokenAnswerError(Exception):
    """An answer of 5xx, or one that is no JSON."""


def target() -> Target:
    seeds = {
        0: {
            "model": "small", "prompt": "ab", "max_tokens": 1, "temperature": 0.5, "top_p": 0.9, "stop": ["x"], "seed": 1,
            "logprobs": 2, "echo": True, "stream": False, "user": "u", "n": 1, "add_special_tokens": True,
        },
        1: {
            "model": "small", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1, "logprobs": True,
            "top_logprobs": 2, "stream": True, "stream_options": {"include_usage": True},
        },
        2: {"prompt": "text", "add_special_tokens": True}, 3: {"tokens": [1, 2, 256]},
    }  # fmt: skip
    listed = [bytes([path]) + json.dumps(body).encode() for path, body in seeds.items()]
    listed += [b"\0" + json.dumps({"model": "small", "prompt": [[1, 2], [3]], "max_tokens": 0}).encode(), b"\4", b"\5{}", b"\6"]
    runner = asyncio.Runner()
    app = build_app(_small(), EngineSettings(rows=2, block_tokens=16, prefix_bytes=1 << 20), max_waiting=64)
    context = app.router.lifespan_context(app)
    runner.run(context.__aenter__())

    def attempt(data: bytes, folder: Path) -> None:
        del folder
        path = PATHS[(data[:1] or b"\0")[0] % len(PATHS)]
        status, body = runner.run(_answer(app, path, data[1:]))
        if status >= 500:
            raise BrokenAnswerError(f"{path} is answered {status}: {body[:200]!r}")
        if status != 499 and path != "/metrics" and not body.startswith(b"data: "):
            json.loads(body)
        if status >= 400:
            raise ValueError(f"{status}: {body[:100]!r}")

    return Target("http_service", listed, attempt, seconds=30.0)


def _small() -> LoadedModel:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({token: n for n, token in enumerate([*letters, "<|endoftext|>"])}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    model = eqx.filter_jit(lambda key: init_model(MODEL, key=key))(jax.random.PRNGKey(0)).decoder()
    template = ChatTemplate(TEMPLATE)
    return LoadedModel("small", "2026-01-01T00:00:00+00:00", model, MODEL, tokenizer, 256, 256, frozenset({256}), template)


async def _answer(app: object, path: str, body: bytes) -> tuple[int, bytes]:
    """Status and body of an answer."""
    headers = [(b"host", b"x"), (b"content-type", b"application/json")]
    method = "GET" if path in ("/metrics", "/v1/models/small") else "POST"
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http", "path": path,
        "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": headers, "client": None, "server": None,
    }  # fmt: skip
    sent, received, ended = [{"type": "http.request", "body": body, "more_body": False}], [], asyncio.Event()

    async def receive() -> dict:
        if sent:
            return sent.pop()
        await ended.wait()  # the client stays
        return {"type": "http.disconnect"}

    async def send(message: dict) -> None:
        received.append(message)

    try:
        await app(scope, receive, send)  # type: ignore[operator]
    finally:
        ended.set()
    status = next(message["status"] for message in received if message["type"] == "http.response.start")
    return status, b"".join(message.get("body", b"") for message in received)
