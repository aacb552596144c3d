"""Merkle trees in the form of RFC 6962: roots, inclusion proofs and consistency proofs, and how they are verified.

The verifying algorithms are those of RFC 9162, sections 2.1.3.2 and 2.1.4.2. All hashes are sha256, 32 bytes.
"""

import hashlib
from collections.abc import Sequence

EMPTY = hashlib.sha256(b"").digest()


def leaf_hash(entry: bytes) -> bytes:
    """Return the hash of an entry as a leaf (RFC 6962, section 2.1)."""
    return hashlib.sha256(b"\x00" + entry).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def _split(size: int) -> int:
    """Return the largest power of two below a size of at least 2."""
    return 1 << ((size - 1).bit_length() - 1)


def root_of(leaves: Sequence[bytes]) -> bytes:
    """Return the root over leaf hashes."""
    return roots_at(leaves, [len(leaves)])[0]


def roots_at(leaves: Sequence[bytes], sizes: Sequence[int]) -> list[bytes]:
    """Return the roots of the trees over the first leaves, for ascending sizes; one pass, whatever the number of sizes."""
    roots: list[bytes] = []
    whole: list[tuple[int, bytes]] = []  # perfect subtrees from left to right: height and root
    done = 0
    for size in sizes:
        for leaf in leaves[done:size]:
            height, value = 0, leaf
            while whole and whole[-1][0] == height:
                value = _node(whole.pop()[1], value)
                height += 1
            whole.append((height, value))
        done = size
        roots.append(_folded([value for _, value in whole]))
    return roots


def _folded(subtrees: Sequence[bytes]) -> bytes:
    if not subtrees:
        return EMPTY
    value = subtrees[-1]
    for left in reversed(subtrees[:-1]):
        value = _node(left, value)
    return value


def inclusion_proof(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """Return the hashes that lead from the leaf at `index` to the root. Raises: ValueError for an index outside the tree."""
    if not 0 <= index < len(leaves):
        raise ValueError(f"leaf {index} of a tree of {len(leaves)}; allowed: 0 to {len(leaves) - 1}")
    if len(leaves) == 1:
        return []
    split = _split(len(leaves))
    if index < split:
        return [*inclusion_proof(leaves[:split], index), root_of(leaves[split:])]
    return [*inclusion_proof(leaves[split:], index - split), root_of(leaves[:split])]


def consistency_proof(leaves: Sequence[bytes], earlier: int) -> list[bytes]:
    """Return the hashes that show that the first `earlier` leaves are those of an earlier tree.

    Raises: ValueError for an earlier size that is not between 1 and the size.
    """
    if not 1 <= earlier <= len(leaves):
        raise ValueError(f"an earlier tree of {earlier} leaves; allowed: 1 to {len(leaves)}")
    return _subproof(leaves, earlier, whole=True)


def _subproof(leaves: Sequence[bytes], earlier: int, *, whole: bool) -> list[bytes]:
    if earlier == len(leaves):
        return [] if whole else [root_of(leaves)]
    split = _split(len(leaves))
    if earlier <= split:
        return [*_subproof(leaves[:split], earlier, whole=whole), root_of(leaves[split:])]
    return [*_subproof(leaves[split:], earlier - split, whole=False), root_of(leaves[:split])]


def includes(leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    """Whether a proof shows that a leaf is at `index` of the tree of this size and root."""
    if not 0 <= index < size:
        return False
    first, last, value = index, size - 1, leaf
    for hashed in proof:
        if last == 0:
            return False
        if first & 1 or first == last:
            value = _node(hashed, value)
            while not first & 1 and first:
                first, last = first >> 1, last >> 1
        else:
            value = _node(value, hashed)
        first, last = first >> 1, last >> 1
    return last == 0 and value == root


def is_consistent(earlier: int, size: int, proof: Sequence[bytes], earlier_root: bytes, root: bytes) -> bool:
    """Whether a proof shows that a tree grew out of an earlier one by appending alone."""
    if not 1 <= earlier <= size:
        return False
    if earlier == size:
        return not proof and earlier_root == root
    path = [earlier_root, *proof] if earlier & (earlier - 1) == 0 else list(proof)
    if not path:
        return False
    first, last = earlier - 1, size - 1
    while first & 1:
        first, last = first >> 1, last >> 1
    old = new = path[0]
    for hashed in path[1:]:
        if last == 0:
            return False
        if first & 1 or first == last:
            old, new = _node(hashed, old), _node(hashed, new)
            while not first & 1 and first:
                first, last = first >> 1, last >> 1
        else:
            new = _node(new, hashed)
        first, last = first >> 1, last >> 1
    return last == 0 and old == earlier_root and new == root
