"""A config of strangers with any number of layers is read or refused at once (found by `make fuzz`, 2026-11-26)."""

import pytest

from trainer.hf.llama import _window
from trainer.spec.llama import LlamaConfig

HUGE = 10**400


def sizes(num_layers: int) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=9, hidden_dim=8, intermediate_dim=8, num_layers=num_layers, num_heads=2, num_kv_heads=1, max_seq_len=4
    )


@pytest.mark.parametrize("num_layers", [10_001, 10**9, HUGE, 0, -1], ids=["10001", "billion", "huge", "0", "-1"])
def test_a_model_of_too_many_layers_is_refused(num_layers: int) -> None:
    with pytest.raises(ValueError, match=r"model.num_layers is -?\d+; it must be (at most 10,000|positive)"):
        sizes(num_layers)


@pytest.mark.parametrize(
    ("kind", "stated", "window"),
    [
        ("LlamaForCausalLM", {}, None),
        ("MistralForCausalLM", {"sliding_window": 4}, 4),
        ("MistralForCausalLM", {"sliding_window": None}, None),
        ("Qwen3ForCausalLM", {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 0}, 4),
        ("Qwen3ForCausalLM", {"use_sliding_window": False, "sliding_window": 4}, None),
    ],
)
@pytest.mark.parametrize("num_layers", [1, 40, HUGE], ids=["1", "40", "huge"])
def test_the_window_of_every_layer_takes_no_time_by_their_number(
    kind: str, stated: dict, window: int | None, num_layers: int
) -> None:
    assert _window(kind, {**stated, "num_hidden_layers": num_layers}) == window


def test_layers_that_differ_are_refused() -> None:
    stated = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 2, "num_hidden_layers": HUGE}
    with pytest.raises(ValueError, match="one window for all layers or for none"):
        _window("Qwen3ForCausalLM", stated)
    with pytest.raises(ValueError, match=r"num_hidden_layers is 1\.5"):
        _window("LlamaForCausalLM", {"num_hidden_layers": 1.5})
