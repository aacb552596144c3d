"""A script for a child process: write pydoc's HTML page of every standard-library module, equal on every run.

Memory addresses in default reprs and links to local files are removed; the rest depends on the Python build only.
"""

import importlib
import pkgutil
import pydoc
import re
import sys
import sysconfig
import warnings
from pathlib import Path

SKIPPED = ("this", "antigravity", "idlelib", "turtle", "turtledemo", "tkinter", "test", "lib2to3", "ensurepip", "__main__")
ADDRESS = re.compile(r"\b(at(?: |&nbsp;)0x|handle(?: |&nbsp;))[0-9a-f]{6,16}")
"""Addresses in default reprs and the handle of a loaded library (ctypes), which differ on every run."""
FILE_LINK = re.compile(r'<a href="file:[^"]*">[^<]*</a>')


def main(target: Path) -> None:
    """Write pydoc's page of every module of the standard library into a folder."""
    warnings.simplefilter("ignore")
    root = sysconfig.get_paths()["stdlib"]
    # For a Python in /usr the path is part of its documentation; any other path belongs to this machine.
    local_paths = [path for path in (root, sys.prefix, sys.base_prefix) if path not in ("/usr", "/usr/local")]
    for name in sorted(module.name for module in pkgutil.iter_modules([root])):
        if name.startswith(SKIPPED) or name.startswith("_"):
            continue
        try:
            module = importlib.import_module(name)
        except ImportError:  # This build lacks the module's C library (curses, readline, ...), so it has no page.
            continue
        page = pydoc.HTMLDoc().page(pydoc.describe(module), pydoc.HTMLDoc().document(module, name))
        text = FILE_LINK.sub("", ADDRESS.sub(r"\g<1>", page))
        for path in local_paths:
            text = text.replace(path, "")
        (target / f"{name}.html").write_text(text, encoding="utf-8", errors="surrogateescape")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
