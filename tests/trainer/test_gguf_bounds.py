"""A GGUF file whose counts and lengths lie is refused by name; it neither runs on nor takes memory."""

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.hf.gguf import read_gguf
from trainer.hf.gguf_reader import MOST_ITEMS, BoundedReader


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file with an array, a text and a tensor."""
    path = tmp_path_factory.mktemp("gguf") / "sound.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_token_list(["a", "b", "c"])
    writer.add_token_types([1, 1, 3])
    writer.add_tensor("token_embd.weight", np.arange(12, dtype=np.float32).reshape(3, 4))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


def edited(sound: bytes, key: str, skipped: int, value: int) -> bytes:
    """The file with another 64-bit number so many bytes behind a key; the key `` is the begin of the file."""
    at = sound.index(key.encode()) + len(key) + skipped
    return sound[:at] + struct.pack("<Q", value) + sound[at + 8 :]


LIES = {
    "tensors": ("", 8),
    "fields": ("", 16),
    "length of a text": ("general.architecture", 4),
    "items of texts": ("tokenizer.ggml.tokens", 8),
    "items of numbers": ("tokenizer.ggml.token_type", 8),
}


def test_a_sound_file_is_read_as_the_package_reads_it(sound: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(sound)
    ours, theirs = BoundedReader(path), gguf.GGUFReader(path)
    assert {name: field.contents() for name, field in ours.fields.items()} == {
        name: field.contents() for name, field in theirs.fields.items()
    }
    np.testing.assert_array_equal(ours.tensors[0].data, theirs.tensors[0].data)


@pytest.mark.parametrize("value", [1 << 40, (1 << 63) + 5, (1 << 64) - 1])
@pytest.mark.parametrize("lie", LIES)
def test_a_number_that_the_file_cannot_hold_is_refused(lie: str, value: int, sound: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(edited(sound, *LIES[lie], value))
    with pytest.raises(ValueError, match=r"model\.gguf"):
        read_gguf(path)


def test_arrays_of_more_items_than_a_vocabulary_has_are_refused(sound: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(edited(sound, *LIES["items of numbers"], MOST_ITEMS) + bytes(4 * MOST_ITEMS))
    with pytest.raises(ValueError, match=r"its arrays have 4,194,307 items; at most 4,194,304"):
        read_gguf(path)


@given(data=st.data())
def test_a_file_that_was_cut_is_refused(data: st.DataObject, sound: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("cut") / "model.gguf"
    path.write_bytes(sound[: data.draw(st.integers(1, len(sound) - 1))])
    with pytest.raises(ValueError, match=r"model\.gguf"):
        read_gguf(path)
