"""Tampering with a store of two runs, with signatures and a log: nothing that the gate can see without keys is lost, and what
it cannot see without them is refused."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tampering import Lab, make_labs
from test_tampering import CLEAN, HELD, HOLES

from lineage.private_files import KEY_FOLDER
from lineage.signing.keys import local_key
from lineage.signing.log import append
from lineage.signing.policy import POLICY, read_policy
from lineage.storage.root import Storage
from lineage.trust.gate import GateError


@dataclass(frozen=True)
class Labs:
    clean: Lab
    held: Lab

    def copied(self, state: str, folder: Path) -> Lab:
        for name in ("clean", "early", "held"):
            shutil.copytree(self.clean.root.parent / name, folder / name, symlinks=True)
        return Lab(folder / state)


@pytest.fixture(scope="module")
def labs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Labs]:
    folder = tmp_path_factory.mktemp("signed")
    key = local_key(folder / "keys")
    (folder / "lab.yaml").write_text(
        f"keys: {{ada: {{public: {key.public.text}, may: [make, judge, waive, publish]}}}}\n"
        f"unsigned: refuse\noldest_schema: 2\nwaive_all: 1\nlog: {folder / 'log'}\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEY_FOLDER, str(folder / "keys"))
        patch.setenv(POLICY, str(folder / "lab.yaml"))
        clean, held = make_labs(folder / "labs")
        for lab in (clean, held):
            where = Storage(str(folder / "log" / lab.root.name))
            append(where, lab.store.storage, key, read_policy(folder / "lab.yaml"))
        assert clean.launch().waivers
        with pytest.raises(GateError):
            held.launch()
        yield Labs(clean, held)


@pytest.mark.parametrize("way", HOLES)
def test_what_needs_keys_is_refused_with_signatures(labs: Labs, way: str, tmp_path: Path) -> None:
    state, tamper = HOLES[way]
    lab = labs.copied(state, tmp_path)
    tamper(lab)
    with pytest.raises(GateError, match=r"unsigned|forged|rolled_back|unjudged|quarantined"):
        lab.launch()


@pytest.mark.parametrize(
    ("state", "kind", "way"),
    [(s, kind, way) for s, table in (("clean", CLEAN), ("held", HELD)) for kind, ways in table.items() for way in ways],
)
def test_every_way_is_refused_with_signatures(labs: Labs, state: str, kind: str, way: str, tmp_path: Path) -> None:
    lab = labs.copied(state, tmp_path)
    (CLEAN if state == "clean" else HELD)[kind][way](lab)
    with pytest.raises((GateError, ValueError, LookupError), match=r"kjv|web|run/[ab]|record \d+ of the verdict log"):
        lab.launch()
