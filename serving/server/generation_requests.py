"""Convert HTTP requests to generation requests: tokenize prompts, check lengths, fill defaults that depend on the model."""

import secrets
from dataclasses import replace

from serving.refusals import RequestError
from serving.server.grammar import ANY_OBJECT, Grammar, json_grammar
from serving.server.loaded_model import LoadedModel
from serving.server.protocol import MOST_ANSWERS, ChatRequest, CompletionRequest, Sampled
from serving.server.sampling import Sampling
from serving.server.sequence import GenerationRequest, Reported


def completion_asks(request: CompletionRequest, served: LoadedModel) -> list[GenerationRequest]:
    """Make `n` requests for each prompt, in the order of the choices. Raises: RequestError."""
    _check(request, served)
    prompts = [_tokens(prompt, i, request.add_special_tokens, served) for i, prompt in enumerate(request.prompt)]
    for i, tokens in enumerate(prompts):
        _check_length(f"prompt {i}", tokens, request.max_tokens, "max_tokens", served)
    asks = [_ask(request, served, tokens, request.max_tokens, request.logprobs, request.echo) for tokens in prompts]
    return [sample for ask in asks for sample in _samples(ask)]


def chat_asks(request: ChatRequest, served: LoadedModel) -> list[GenerationRequest]:
    """Render the conversation with the tokenizer's chat template, and make `n` requests of it.

    Raises: RequestError, 400 if there is no template.
    """
    _check(request, served)
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
    return _samples(_ask(request, served, tokens, most, request.top_logprobs if request.logprobs else None, False))


def _ask(
    request: Sampled, served: LoadedModel, tokens: tuple[int, ...], max_tokens: int, top: int | None, echo: bool
) -> GenerationRequest:
    """Make the request of a prompt's first sample.

    Every prompt uses the given seed, so a prompt in a list gets the same answer as alone.
    """
    return GenerationRequest(
        prompt=tokens,
        max_tokens=max_tokens,
        sampling=Sampling(request.temperature, request.top_p, max(0, request.top_k), request.min_p),
        seed=request.seed if request.seed is not None else secrets.randbits(63),
        samples=request.n,
        stops=request.stop,
        end_tokens=frozenset(request.stop_token_ids) | (frozenset() if request.ignore_eos else served.end_tokens),
        top=top,
        echo=echo,
        grammar=_grammar(request, served),
        reported=Reported(
            token_ids=request.return_token_ids,
            sampling=request.return_sampling,
            kept_token_ids=request.return_kept_token_ids,
            processed=request.logprobs_mode == "processed_logprobs",
        ),
    )


def _grammar(request: Sampled, served: LoadedModel) -> Grammar | None:
    """Return the grammar of `response_format`; None if any text is allowed. Raises: RequestError, 400."""
    form = request.response_format
    if (form.json_schema is not None if form is not None else False) != (form is not None and form.type == "json_schema"):
        raise RequestError(
            400, "response_format: json_schema is given with type 'json_schema', and only then", "response_format"
        )
    if form is None or form.type == "text":
        return None
    if request.ignore_eos:
        raise RequestError(400, "ignore_eos is true; it is not allowed with JSON, which has an end", "ignore_eos")
    schema = ANY_OBJECT if form.json_schema is None else form.json_schema.schema_
    return json_grammar(served.tokenizer, served.config.vocab_size, served.end_token, schema)


def _samples(ask: GenerationRequest) -> list[GenerationRequest]:
    return [replace(ask, sample=sample) for sample in range(ask.samples)]


def _tokens(prompt: str | tuple[int, ...], index: int, add_start: bool, served: LoadedModel) -> tuple[int, ...]:
    if isinstance(prompt, str):
        ids = served.tokenizer.encode(prompt, add_special_tokens=False).ids
        return (served.start_token, *ids) if add_start or not ids else tuple(ids)
    if not prompt:
        raise RequestError(400, f"prompt {index} is []; at least one token id is allowed, or an empty string", "prompt")
    _check_tokens(f"prompt {index}", prompt, "prompt", served)
    return prompt


def _check_tokens(what: str, tokens: tuple[int, ...], field: str, served: LoadedModel) -> None:
    for token in tokens:
        if not 0 <= token < served.config.vocab_size:
            raise RequestError(400, f"{what} has token id {token}; 0 to {served.config.vocab_size - 1} are allowed", field)


def _check_length(what: str, tokens: tuple[int, ...], max_tokens: int, field: str, served: LoadedModel) -> None:
    """Check that prompt and answer fit the context. The last generated token is never read, so it needs no place."""
    longest = served.config.max_seq_len
    if len(tokens) > longest:
        raise RequestError(400, f"{what} has {len(tokens)} tokens; at most {longest} are allowed", "prompt", "too_long")
    if len(tokens) + max_tokens > longest + 1:
        allowed = f"behind {what} of {len(tokens)} tokens at most {longest + 1 - len(tokens)} are allowed"
        raise RequestError(400, f"{field} is {max_tokens}; {allowed}", field, "too_long")


def _check(request: Sampled, served: LoadedModel) -> None:
    """Check what both endpoints have and the form cannot check."""
    if request.model != served.name:
        raise RequestError(404, f"model is {request.model!r}; allowed: {served.name!r}", "model", "model_not_found")
    _check_tokens("stop_token_ids", request.stop_token_ids, "stop_token_ids", served)
    if request.return_kept_token_ids and not request.return_sampling:
        only = "return_kept_token_ids is true; it is allowed with return_sampling: true only"
        raise RequestError(400, only, "return_kept_token_ids")
    prompts = len(request.prompt) if isinstance(request, CompletionRequest) else 1
    if prompts * request.n > MOST_ANSWERS:
        raise RequestError(400, f"n is {request.n} for {prompts} prompts; at most {MOST_ANSWERS} answers are allowed", "n")
