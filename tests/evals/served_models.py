"""A loopback server for tests: a trained or untrained small byte model behind uvicorn in a thread."""

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from safetensors.numpy import save_file
from tiny import tiny_model, tiny_spec
from tiny_models import quick_model
from tokenizers import Tokenizer
from unigram import START, byte_tokenizer

from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.order.mixture import MIXTURE, MixtureConfig, Phase
from lineage.order.token_shards import tokens_extra, write_token_shard
from lineage.stage import Stage
from lineage.writing.writer import Writer
from serving.connections import BoundedProtocol, server_config
from serving.refusals import LOOPBACK
from serving.server.app import build_app
from serving.server.engine import EngineSettings
from serving.server.loaded_model import LoadedModel
from serving.server.weights import Reloading
from trainer.hf.convert import hf_config
from trainer.spec.schedules import WarmupStableDecay
from trainer.spec.stage import CHECKPOINT, CheckpointConfig, step_partition

TEXT = "The café in the square opens at nine. “Naïve,” said the old man, and the young man said: no, the square is closed. "
RUN = tiny_spec(
    name="served",
    model=tiny_model(vocab_size=257, intermediate_dim=64, max_seq_len=120),
    schedule=WarmupStableDecay(peak_learning_rate=1e-2, warmup_steps=10, decay_frac=0.2),
    batch_size=8,
    seq_len=64,
    num_steps=400,
    save_every_steps=400,
)
SETTINGS = EngineSettings(rows=4, block_tokens=16, prefix_bytes=1 << 22)


@dataclass(frozen=True)
class Specials:
    """Special tokens in the place of bytes that no text has, and the chat template."""

    chat_template: str | None = None


def write_tokenizer(out: Writer, config: Specials) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.save(str(out.folder / "tokenizer.json"))
    if config.chat_template is not None:
        facts = {"chat_template": config.chat_template, "eos_token": {"content": "<|endoftext|>"}}
        (out.folder / "tokenizer_config.json").write_text(json.dumps(facts))
    out.extra["tokenizer"] = {"vocab_size": 257, "eos": START}


def write_cache(out: Writer, config: dict, tokenizer: Artifact) -> None:
    documents = [(f"{i:032x}", np.array([*(TEXT * (1 + i % 4)).encode(), START])) for i in range(60)]
    shard = write_token_shard(out.folder, "s", documents, "uint16")
    out.facts["tokens"] = tokens_extra("text", "uint16", 257, tokenizer.data_version, None, START, [shard])


def tokenizer_node(chat_template: str | None = None) -> Node:
    return Node(("tokenizer",), None, Stage("tests.tokenizer", "1", write_tokenizer), Specials(chat_template))


def trained(root: Path) -> Artifact:
    """The checkpoint of a run of 400 steps, with the lineage of a real one."""
    store = Store(str(root))
    tokenizer = tokenizer_node()
    cache = Node(("cache",), None, Stage("tests.cache", "1", write_cache), {}, {"tokenizer": tokenizer})
    mixture = Node(("mixture",), None, MIXTURE, MixtureConfig("m", (Phase(0, {"text": 1.0}),), seed=1), {"caches": (cache,)})
    place = ("runs", RUN.name, "checkpoint"), step_partition(RUN.num_steps)
    node = Node(*place, CHECKPOINT, CheckpointConfig(RUN, RUN.num_steps), {"mixture": mixture})
    for part in (tokenizer, cache, mixture, node):
        artifact = build(store, part).artifact
    return artifact


def untrained(name: str, tokenizer: Tokenizer | None = None) -> LoadedModel:
    """A model of random weights: its numbers are as good as any where only their equality counts."""
    if tokenizer is None:
        tokenizer = byte_tokenizer()
        tokenizer.add_special_tokens(["<|endoftext|>"])
    config = replace(RUN.model, vocab_size=tokenizer.get_vocab_size())
    model = quick_model(config)
    return LoadedModel(
        name, "2026-01-01T00:00:00+00:00", model.decoder(), config, tokenizer, START, START, frozenset({START}), None
    )


def write_hf_folder(folder: Path, seed: int = 0, max_seq_len: int = RUN.model.max_seq_len) -> Path:
    """A model of random weights and a token a byte, in Hugging Face's form: what a server's process can be started on."""
    model, rng = replace(RUN.model, max_seq_len=max_seq_len), np.random.default_rng(seed)
    width, inner, kept = model.hidden_dim, model.intermediate_dim, model.num_kv_heads * model.head_size
    shapes = {"model.embed_tokens": (model.vocab_size, width), "model.norm": (width,)}
    for layer in range(model.num_layers):
        own = {
            "self_attn.q_proj": (width, width), "self_attn.k_proj": (kept, width), "self_attn.v_proj": (kept, width),
            "self_attn.o_proj": (width, width), "mlp.gate_proj": (inner, width), "mlp.up_proj": (inner, width),
            "mlp.down_proj": (width, inner), "input_layernorm": (width,), "post_attention_layernorm": (width,),
        }  # fmt: skip
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in own.items()}
    drawn = {f"{name}.weight": rng.normal(scale=0.2, size=shape).astype(np.float32) for name, shape in shapes.items()}
    folder.mkdir()
    save_file(drawn, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(hf_config(model, (START,), START)))
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def events(self) -> list[Any]:
        """The events of a stream; the last is the string `[DONE]`."""
        lines = [line.removeprefix("data: ") for line in self.text.split("\n\n") if line]
        return [line if line == "[DONE]" else json.loads(line) for line in lines]


@dataclass(frozen=True)
class Client:
    port: int
    model: str

    def get(self, path: str) -> Answer:
        return self.send(urllib.request.Request(self.url(path)))

    def post(self, path: str, body: bytes | dict) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.send(urllib.request.Request(self.url(path), data, {"content-type": "application/json"}))

    def complete(self, prompt: Any, **fields: Any) -> Any:
        """The answer to a completion request, greedy by default."""
        answer = self.post("/v1/completions", {"model": self.model, "prompt": prompt, "temperature": 0} | fields)
        assert answer.status == 200, answer.text
        return answer.events if fields.get("stream") else answer.json

    def send(self, request: urllib.request.Request) -> Answer:
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                return Answer(response.status, dict(response.headers), response.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, dict(error.headers), error.read().decode())

    def url(self, path: str) -> str:
        return f"http://{LOOPBACK}:{self.port}{path}"


@contextmanager
def serving(
    served: LoadedModel,
    settings: EngineSettings = SETTINGS,
    max_waiting: int = 1024,
    api_key: str | None = None,
    on_fault: Callable[[BaseException], None] = lambda fault: None,
    protocol: type[BoundedProtocol] = BoundedProtocol,
    reloading: Reloading | None = None,
) -> Iterator[Client]:
    """A real server on a free port, stopped at the end."""
    app = build_app(served, settings, max_waiting, api_key, on_fault, reloading)
    config = server_config(app, protocol)
    config.host, config.port = LOOPBACK, 0
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server ended while it started"
            time.sleep(0.01)
        yield Client(server.servers[0].sockets[0].getsockname()[1], served.name)
    finally:
        server.should_exit = True
        thread.join()
