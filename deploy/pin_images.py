"""Give every image of some manifests its digest: `curl ... | python deploy/pin_images.py images.lock | kubectl apply -f -`.

`helm ... --post-renderer deploy/pin_images.sh` does the same for a chart. The lock has a line for each image, name and digest:

    registry.k8s.io/jobset/jobset:v0.10.1 sha256:...

An image that is not in the lock stops it, and the message says how to ask for its digest. `--list` prints the images instead.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

IMAGE_LINE = re.compile(
    r"""(?P<start>^[ \t]*(?:- )*[ \t]*image:[ \t]+)(?P<quote>["']?)(?P<name>[^\s"'#]+)(?P=quote)""", re.MULTILINE
)
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
ASK = "docker buildx imagetools inspect {} --format '{{{{.Manifest.Digest}}}}'"


class Loader(yaml.SafeLoader):
    """Reads `=`, which is an operator in some definitions of resources, as text."""


Loader.add_constructor("tag:yaml.org,2002:value", lambda loader, node: loader.construct_scalar(node))


class UnpinnedError(ValueError):
    """Images without a digest."""

    def __init__(self, names: list[str]):
        lines = "\n".join(f"  {name}  (ask: {ASK.format(name)})" for name in names)
        super().__init__(f"these images have no digest in the lock; add a line `NAME sha256:...` for each:\n{lines}")


def read_lock(text: str) -> dict[str, str]:
    """Return image -> digest. Raises: ValueError naming a line of another form, or an image with two digests."""
    lock: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or not DIGEST.fullmatch(words[1]) or "@" in words[0]:
            raise ValueError(f"line {number} of the lock is {line!r}; it must be an image by tag and sha256:<64 hex digits>")
        if lock.setdefault(words[0], words[1]) != words[1]:
            raise ValueError(f"line {number} of the lock gives {words[0]} a second digest")
    return lock


def pinned(manifests: str, lock: Mapping[str, str]) -> str:
    """Return the manifests with a digest for every image of every container; nothing else in the text changes.

    Raises: UnpinnedError naming images that the lock lacks; ValueError naming one that is not on a line of its own.
    """
    unknown = sorted({name for name in images_in(manifests) if "@" not in name and name not in lock})
    if unknown:
        raise UnpinnedError(unknown)

    def with_digest(line: re.Match[str]) -> str:
        name = line["name"]
        return f"{line['start']}{name}@{lock[name]}" if name in lock else line[0]

    text = IMAGE_LINE.sub(with_digest, manifests)
    if left := sorted({name for name in images_in(text) if "@" not in name}):
        raise ValueError(f"image {left[0]!r} is not on a line of its own (`image: NAME`), so its digest cannot be added")
    return text


def images_in(manifests: str) -> list[str]:
    """Return the image of every container. Raises: ValueError for an image by a digest of another form."""
    names = [container["image"] for document in yaml.load_all(manifests, Loader) for container in _containers(document)]
    for name in names:
        _, at, digest = name.partition("@")
        if at and not DIGEST.fullmatch(digest):
            raise ValueError(f"image {name!r} has a digest of another form than sha256:<64 hex digits>")
    return names


def _containers(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every mapping with an image below `containers`, `initContainers` or `ephemeralContainers`, however deep."""
    if isinstance(value, list):
        for each in value:
            yield from _containers(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            if name in ("containers", "initContainers", "ephemeralContainers") and isinstance(each, list):
                yield from (c for c in each if isinstance(c, dict) and isinstance(c.get("image"), str))
            else:
                yield from _containers(each)


def main(arguments: list[str]) -> int:
    """Read manifests from standard input and write them with digests, or list their images."""
    if len(arguments) != 1:
        print(f"usage: {Path(__file__).name} LOCK | --list   (manifests on standard input)", file=sys.stderr)
        return 2
    manifests = sys.stdin.read()
    try:
        if arguments == ["--list"]:
            print("\n".join(sorted(set(images_in(manifests)))))
        else:
            sys.stdout.write(pinned(manifests, read_lock(Path(arguments[0]).read_text(encoding="utf-8"))))
    except (ValueError, OSError, yaml.YAMLError) as error:
        print(f"pin_images: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
