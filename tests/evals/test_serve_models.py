"""Models as they are published: their own begin and end of a text, tokenizer settings, chat templates, words with spaces."""

import json

import pytest
from served_models import serving, untrained, write_hf_folder
from spaced import spaced_tokenizer
from tokenizers import Tokenizer
from unigram import START

from serving.server.chat import find_chat_template
from serving.server.opening import open_model
from serving.server.text import token_text


def test_what_opens_a_text_of_a_published_model_is_its_own_bos(tmp_path) -> None:
    """lm-eval puts it before an empty context, and asks here what it is."""
    folder = write_hf_folder(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"bos_token_id": 65}))
    with serving(open_model(folder, None, "m")) as client:
        assert client.get("/tokenizer_info").json == {"bos_token": "A", "eos_token": "<|endoftext|>"}
        fields = {"max_tokens": 0, "echo": True, "logprobs": 1}
        assert (
            client.complete("bc", add_special_tokens=True, **fields)["choices"]
            == client.complete([*b"Abc"], **fields)["choices"]
        )
        assert client.complete("", **fields)["choices"] == client.complete([65], **fields)["choices"]
        assert client.post("/tokenize", {"prompt": "b", "add_special_tokens": True}).json["tokens"] == [65, 98]
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": {"content": "B"}}))
    assert open_model(folder, None, "m").start_token == 66, "the tokenizer's word counts before the config's"
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>"}))
    with pytest.raises(ValueError, match=r"bos_token of tokenizer_config.json is '<s>', which tokenizer.json does not have"):
        open_model(folder, None, "m")
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": None}))
    (folder / "config.json").write_text(json.dumps(config | {"bos_token_id": None}))
    assert open_model(folder, None, "m").start_token == START


def test_a_tokenizer_that_was_saved_with_a_length_reads_the_whole_text(tmp_path) -> None:
    folder = write_hf_folder(tmp_path / "model")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=16)
    tokenizer.save(str(folder / "tokenizer.json"))
    served = open_model(folder, None, "m")
    with serving(served) as client:
        assert client.complete("eight by", max_tokens=0)["usage"]["prompt_tokens"] == 8
    assert [len(encoded.ids) for encoded in served.tokenizer.encode_batch_fast(["eight by", "a"])] == [8, 1]


def test_of_several_chat_templates_the_default_one_is_taken(tmp_path) -> None:
    named = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "yes"}]
    for templates, expected in ((named, "yes"), ("one", "one"), (named[:1], None), (None, None)):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": templates}))
        template = find_chat_template(tmp_path)
        assert (None if template is None else template.source) == expected


def test_a_model_whose_tokens_are_words_with_their_space_speaks_with_spaces() -> None:
    tokenizer = spaced_tokenizer("the", "cat", "sat", with_bytes=False)
    with serving(untrained("m", tokenizer)) as client:
        fields = {"max_tokens": 30, "temperature": 1.0, "seed": 3, "logprobs": 1}
        ids = tokenizer.encode("the cat").ids
        alone, echoed = (client.complete("the cat", echo=echo, **fields)["choices"][0] for echo in (False, True))
        spoken = [ids_of(tokenizer, name) for name in alone["logprobs"]["tokens"]]
        assert echoed["text"] == tokenizer.decode([*ids, *spoken]) == "the cat" + alone["text"]
        for choice, first in ((alone, 0), (echoed, 1)):  # a text's own first token has lost its space
            for name, offset in [*zip(*(choice["logprobs"][key] for key in ("tokens", "text_offset")), strict=True)][first:]:
                assert name in ("<unk>", "<s>", "</s>") or choice["text"][offset:].startswith(name)
        *events, _ = client.complete("the cat", stream=True, **fields)
        assert "".join(event["choices"][0]["text"] for event in events) == alone["text"]


def ids_of(tokenizer: Tokenizer, name: str) -> int:
    if name.startswith("token_id:"):
        return int(name.removeprefix("token_id:"))
    numbers = [number for number in range(tokenizer.get_vocab_size()) if token_text(tokenizer, number) == name]
    return numbers[0]
