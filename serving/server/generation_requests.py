"""Convert HTTP requests to generation requests: tokenize prompts, check lengths, fill defaults that depend on the model."""

import secrets

from serving.refusals import RequestError
from serving.server.loaded_model import LoadedModel
from serving.server.protocol import ChatRequest, CompletionRequest, Sampled
from serving.server.sampling import Sampling
from serving.server.sequence import GenerationRequest


def completion_asks(request: CompletionRequest, served: LoadedModel) -> list[GenerationRequest]:
    """Make one `GenerationRequest` a prompt. Raises: RequestError."""
    _check_model(request, served)
    prompts = [_tokens(prompt, i, request.add_special_tokens, served) for i, prompt in enumerate(request.prompt)]
    for i, tokens in enumerate(prompts):
        _check_length(f"prompt {i}", tokens, request.max_tokens, "max_tokens", served)
    return [_ask(request, served, tokens, request.max_tokens, request.logprobs, request.echo) for tokens in prompts]


def chat_ask(request: ChatRequest, served: LoadedModel) -> GenerationRequest:
    """Render the conversation with the tokenizer's chat template. Raises: RequestError, 400 if there is none."""
    _check_model(request, served)
    if served.chat_template is None:
        raise RequestError(
            400,
            f"model {served.name!r} has no chat template: its tokenizer has neither chat_template.jinja nor a "
            "chat_template in tokenizer_config.json; use /v1/completions",
            "messages",
        )
    if request.max_tokens is not None and request.max_completion_tokens is not None:
        raise RequestError(400, "max_tokens and max_completion_tokens are both given; one of them is allowed", "max_tokens")
    if request.top_logprobs and not request.logprobs:
        raise RequestError(400, f"top_logprobs is {request.top_logprobs}; only 0 is allowed without logprobs", "top_logprobs")
    tokens = tuple(served.chat_template.render(request.messages, served.tokenizer))
    wanted = request.max_completion_tokens or request.max_tokens
    most = max(1, served.config.max_seq_len + 1 - len(tokens)) if wanted is None else wanted
    _check_length("messages", tokens, most, "max_tokens", served)
    return _ask(request, served, tokens, most, request.top_logprobs if request.logprobs else None, False)


def _ask(
    request: Sampled, served: LoadedModel, tokens: tuple[int, ...], max_tokens: int, top: int | None, echo: bool
) -> GenerationRequest:
    """Make one request. Every prompt uses the given seed, so a prompt in a list gets the same answer as alone."""
    return GenerationRequest(
        prompt=tokens,
        max_tokens=max_tokens,
        sampling=Sampling(request.temperature, request.top_p),
        seed=request.seed if request.seed is not None else secrets.randbits(63),
        stops=request.stop,
        end_tokens=served.end_tokens,
        top=top,
        echo=echo,
    )


def _tokens(prompt: str | tuple[int, ...], index: int, add_start: bool, served: LoadedModel) -> tuple[int, ...]:
    if isinstance(prompt, str):
        ids = served.tokenizer.encode(prompt, add_special_tokens=False).ids
        return (served.start_token, *ids) if add_start or not ids else tuple(ids)
    if not prompt:
        raise RequestError(400, f"prompt {index} is []; at least one token id is allowed, or an empty string", "prompt")
    for token in prompt:
        if not 0 <= token < served.config.vocab_size:
            raise RequestError(
                400, f"prompt {index} holds token id {token}; 0 to {served.config.vocab_size - 1} are allowed", "prompt"
            )
    return prompt


def _check_length(what: str, tokens: tuple[int, ...], max_tokens: int, field: str, served: LoadedModel) -> None:
    """Check that prompt and answer fit the context. The last generated token is never read, so it needs no place."""
    longest = served.config.max_seq_len
    if len(tokens) > longest:
        raise RequestError(400, f"{what} has {len(tokens)} tokens; at most {longest} are allowed", "prompt", "too_long")
    if len(tokens) + max_tokens > longest + 1:
        allowed = f"behind {what} of {len(tokens)} tokens at most {longest + 1 - len(tokens)} are allowed"
        raise RequestError(400, f"{field} is {max_tokens}; {allowed}", field, "too_long")


def _check_model(request: Sampled, served: LoadedModel) -> None:
    if request.model != served.name:
        raise RequestError(404, f"model is {request.model!r}; allowed: {served.name!r}", "model", "model_not_found")
