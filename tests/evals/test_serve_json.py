"""JSON output: every answer follows its schema, whatever the model prefers, and the draws report the grammar's cut."""

import json
from collections.abc import Iterator

import numpy as np
import pytest
from served_models import SETTINGS, Client, serving, untrained

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 4}, "n": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "n"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "pair", "schema": SCHEMA, "strict": True}}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A model of random weights, which would never write JSON."""
    with serving(untrained("m"), SETTINGS) as client:
        yield client


def test_a_finished_answer_follows_its_schema_and_a_cut_one_begins_like_one(client) -> None:
    fields = {"temperature": 1.0, "seed": 3, "n": 12, "max_tokens": 90, "response_format": FORMAT}
    choices = client.complete("a", **fields)["choices"]
    ended = [choice["text"] for choice in choices if choice["finish_reason"] == "stop"]
    assert len(ended) >= 6
    for text in ended:
        found = json.loads(text)
        assert found.keys() == {"name", "n"} and len(found["name"]) <= 4 and 0 <= found["n"] <= 99
    assert all(choice["text"].lstrip().startswith("{") for choice in choices)
    (greedy,) = client.complete("a", max_tokens=90, response_format={"type": "json_object"})["choices"]
    assert greedy["text"].lstrip().startswith("{")


def test_the_grammars_cut_is_in_the_sampling_distribution(client) -> None:
    reported = {"return_token_ids": True, "return_sampling": True, "return_kept_token_ids": True}
    fields = {"temperature": 1.0, "seed": 4, "max_tokens": 30, "response_format": FORMAT, **reported}
    (choice,) = client.complete("a", **fields)["choices"]
    drawn = choice["sampling"]
    assert max(drawn["kept_mass"]) < 1
    for token, kept in zip(choice["token_ids"], drawn["kept_token_ids"], strict=True):
        assert token in kept
    expected = np.array(drawn["raw_logprobs"]) - np.log(drawn["kept_mass"])
    np.testing.assert_allclose(drawn["processed_logprobs"], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"response_format": {"type": "json_schema"}}, "json_schema is given with type 'json_schema', and only then"),
        ({"response_format": {**FORMAT, "type": "json_object"}}, "json_schema is given with type 'json_schema', and only then"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "nonsense"}}}},
            "the schema cannot be followed: Invalid type: nonsense",
        ),
        ({"response_format": FORMAT, "ignore_eos": True}, "ignore_eos is true; it is not allowed with JSON"),
        ({"response_format": {"type": "xml"}}, "Input should be 'text', 'json_object' or 'json_schema'"),
    ],
)
def test_a_form_that_cannot_be_followed_is_refused(client, fields: dict, message: str) -> None:
    answer = client.post("/v1/completions", {"model": "m", "prompt": "a", **fields})
    assert answer.status == 400 and message in answer.json["error"]["message"]


def test_any_text_is_the_default(client) -> None:
    plain = client.complete("a", max_tokens=5)["choices"]
    assert client.complete("a", max_tokens=5, response_format={"type": "text"})["choices"] == plain
