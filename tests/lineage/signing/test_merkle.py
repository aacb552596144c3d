"""Merkle trees: roots and proofs equal the definitions of RFC 6962; a proof of anything else is refused."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineage.signing.merkle import (
    consistency_proof,
    includes,
    inclusion_proof,
    is_consistent,
    leaf_hash,
    root_of,
    roots_at,
)

# The leaves and roots of the reference tests of Certificate Transparency (google/certificate-transparency, merkle tree tests).
VECTORS = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


def slow_root(entries: list[bytes]) -> bytes:
    """The definition, word for word (RFC 6962, section 2.1)."""
    if not entries:
        return hashlib.sha256(b"").digest()
    if len(entries) == 1:
        return hashlib.sha256(b"\x00" + entries[0]).digest()
    k = 1
    while k * 2 < len(entries):
        k *= 2
    return hashlib.sha256(b"\x01" + slow_root(entries[:k]) + slow_root(entries[k:])).digest()


def leaves_of(size: int) -> list[bytes]:
    return [leaf_hash(f"entry {i}".encode()) for i in range(size)]


def test_roots_are_those_of_the_reference() -> None:
    leaves = [leaf_hash(bytes.fromhex(entry)) for entry in VECTORS]
    assert [root_of(leaves[: i + 1]).hex() for i in range(len(leaves))] == ROOTS
    assert [root.hex() for root in roots_at(leaves, range(1, 9))] == ROOTS


@pytest.mark.parametrize("size", range(40))
def test_roots_and_proofs_equal_the_definition(size: int) -> None:
    entries, leaves = [f"entry {i}".encode() for i in range(size)], leaves_of(size)
    root = root_of(leaves)
    assert root == slow_root(entries)
    for index in range(size):
        proof = inclusion_proof(leaves, index)
        assert includes(leaves[index], index, size, proof, root)
        assert not includes(leaf_hash(b"other"), index, size, proof, root)
        assert not any(includes(leaves[index], other, size, proof, root) for other in range(size) if other != index)
    for earlier in range(1, size + 1):
        assert is_consistent(earlier, size, consistency_proof(leaves, earlier), root_of(leaves[:earlier]), root)


@given(st.data())
def test_a_rewritten_past_is_not_consistent(data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 60))
    earlier = data.draw(st.integers(1, size - 1))
    changed = data.draw(st.integers(0, earlier - 1))
    before, after = leaves_of(size), leaves_of(size)
    after[changed] = leaf_hash(b"rewritten")
    for proof in (consistency_proof(before, earlier), consistency_proof(after, earlier)):
        assert not is_consistent(earlier, size, proof, root_of(before[:earlier]), root_of(after))
    proof = consistency_proof(before, earlier)
    assert not is_consistent(earlier, size, proof[:-1], root_of(before[:earlier]), root_of(before))
    assert not is_consistent(earlier, size, [*proof, proof[0]], root_of(before[:earlier]), root_of(before))
