"""A server in the form of vLLM's: `python -m vllm_stub PORT LOG`. Answers have the fields and nulls of vLLM 0.11's completions.

It counts no probabilities: tokens are a function of the seed and the index of the sample. LOG gets a line a request.
"""

import json
import sys
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MODEL = "Qwen/Qwen3-0.6B"


def choice(body: dict, index: int, size: int) -> dict:
    """vLLM's `CompletionResponseChoice`, of tokens below `size`."""
    tokens = [(body["seed"] * 31 + index * 7 + place) % size for place in range(body["max_tokens"])]
    log_probs = {
        "text_offset": list(range(len(tokens))),
        "token_logprobs": [-0.5 - place for place in range(len(tokens))],
        "tokens": [f"t{token}" for token in tokens],
        "top_logprobs": [{f"t{token}": -0.5 - place} for place, token in enumerate(tokens)],
    }
    return {
        "index": index,
        "text": "".join(log_probs["tokens"]),
        "logprobs": log_probs if body.get("logprobs") is not None else None,
        "finish_reason": "length",
        "stop_reason": None,
        "token_ids": tokens if body.get("return_token_ids") else None,
        "prompt_logprobs": None,
        "prompt_token_ids": body["prompt"] if body.get("return_token_ids") else None,
    }


def completion(body: dict, size: int = 1000) -> dict:
    """vLLM's `CompletionResponse`: no fingerprint, and the fields of features that are off are null."""
    choices = [choice(body, index, size) for index in range(body.get("n", 1))]
    counts = len(body["prompt"]), sum(len(each["token_ids"] or ()) for each in choices)
    usage = {"prompt_tokens": counts[0], "total_tokens": sum(counts), "completion_tokens": counts[1]}
    facts = {"id": f"cmpl-{body['seed']}", "object": "text_completion", "created": 1764000000, "model": body["model"]}
    nulls = {"service_tier": None, "system_fingerprint": None, "kv_transfer_params": None}
    return {**facts, "choices": choices, **nulls, "usage": {**usage, "prompt_tokens_details": None}}


def handler(log: Path, size: int = 1000, stated: Callable[[], Mapping[str, str]] = dict) -> type[BaseHTTPRequestHandler]:
    """A handler that logs its requests. `stated` gives fields of each answer, such as a fingerprint."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            card = {"id": MODEL, "object": "model", "created": 1764000000, "owned_by": "vllm", "root": MODEL}
            self.answer({"object": "list", "data": [card | {"parent": None, "max_model_len": 4096, "permission": []}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with lock, log.open("a") as file:
                file.write(json.dumps(body) + "\n")
            self.answer({**completion(body, size), **stated()})

        def answer(self, document: dict) -> None:
            content = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), handler(Path(sys.argv[2]))).serve_forever()
