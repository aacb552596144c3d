"""A process that renders chat templates with limits on time, memory and length; it is restarted after it exceeds one."""

import json
import os
import selectors
import subprocess
import sys
import threading
import time
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHILD = Path(__file__).with_name("template_child.py")


class TemplateFaultError(ValueError):
    """The template refuses its input, or exceeded a limit."""


@dataclass(eq=False)
class TemplateProcess:
    """One process for one caller at a time; it starts with the first request and ends with this object."""

    seconds: float = 5.0
    """Limit for one text. A text takes about a millisecond; the rest allows for a loaded machine."""
    memory_mib: int = 512
    most_characters: int = 8 << 20
    lock: threading.Lock = field(default_factory=threading.Lock)
    process: subprocess.Popen[bytes] | None = None
    finalizer: "weakref.finalize[..., TemplateProcess] | None" = None

    def render(self, source: str, given: dict[str, Any]) -> str:
        """Render a template. Raises: TemplateFaultError."""
        request = {"source": source, "given": given, "most_characters": self.most_characters}
        with self.lock:
            answer = self._ask(json.dumps(request).encode() + b"\n")
        if "text" not in answer:
            raise TemplateFaultError(answer["fault"])
        return answer["text"]

    def close(self) -> None:
        with self.lock:
            self._end()

    def _ask(self, line: bytes) -> dict[str, str]:
        process = self._running()
        deadline = time.monotonic() + self.seconds
        written, output = memoryview(line), bytearray()
        assert process.stdin is not None and process.stdout is not None
        with selectors.DefaultSelector() as ready:
            ready.register(process.stdout, selectors.EVENT_READ)
            ready.register(process.stdin, selectors.EVENT_WRITE)
            while not output.endswith(b"\n"):
                left = deadline - time.monotonic()
                events = ready.select(max(left, 0))
                if not events or left < 0:
                    self._end()
                    raise TemplateFaultError(f"it took more than {self.seconds:g} s")
                if any(key.fileobj is process.stdin for key, _ in events):
                    written = _wrote(process.stdin.fileno(), written)
                    if not written:
                        ready.unregister(process.stdin)
                if any(key.fileobj is process.stdout for key, _ in events):
                    piece = os.read(process.stdout.fileno(), 1 << 16)
                    output += piece
                    if not piece:
                        raise TemplateFaultError(f"it ended its process with status {self._end()}")
        return json.loads(output)

    def _running(self) -> subprocess.Popen[bytes]:
        if self.process is None or self.process.poll() is not None:
            self._end()
            command = [sys.executable, "-I", str(CHILD), str(self.memory_mib << 20)]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            self.process = subprocess.Popen(command, bufsize=0, env={}, **pipes)
            assert self.process.stdin is not None
            os.set_blocking(self.process.stdin.fileno(), False)
            self.finalizer = weakref.finalize(self, _ended, self.process)
        return self.process

    def _end(self) -> int | None:
        """Stop the process; returns its exit status, or None if there was none."""
        if self.process is None or self.finalizer is None:
            return None
        status, self.process = self.finalizer(), None
        return status


def _ended(process: subprocess.Popen[bytes]) -> int:
    process.kill()
    process.communicate()  # closes the pipes and waits
    return process.returncode


def _wrote(descriptor: int, left: memoryview) -> memoryview:
    """Write a part; returns the rest, which is empty if the child has ended (its output shows that)."""
    try:
        return left[os.write(descriptor, left) :]
    except BrokenPipeError:
        return left[:0]
