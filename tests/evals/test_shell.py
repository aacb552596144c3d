"""The shell that only reads: its commands print what the real tools print, and none of forty escapes leaves the folder."""

import os
import subprocess
from pathlib import Path

import pytest

from evals.sandbox.run import Limits
from evals.sandbox.shell import run_line
from evals.sandbox.shell_folder import Folder
from evals.sandbox.shell_interpreter import Result, Shell
from lineage.storage.digests import file_digest

SECRET = "the-secret-outside"
FILES = {
    "README.md": "# Words\n\nA package (small) of words.\nIt has 2 parts.\n",
    "setup.py": "from setuptools import setup\nsetup(name='words')\n",
    "src/words/__init__.py": "from words.parse import parse\n\n__all__ = ['parse']\n",
    "src/words/parse.py": "import re\n\n\ndef parse(text):\n    return re.findall(r'a+|b', text)\n\n\ndef parse_all(texts):\n"
    "    return [parse(each) for each in texts]\n",
    "src/words/data/list.txt": "".join(f"word {number}\n" for number in range(1, 41)),
    "tests/test_parse.py": "from words import parse\n\n\ndef test_parse():\n    assert parse('aab') == ['aa', 'b']\n",
    ".hidden": "hidden\n",
}
EQUAL = (
    "ls", "ls -a | grep hidden", "ls src/words", "ls -1 tests", "cat README.md", "cat -n setup.py", "cat README.md setup.py",
    "head -n 3 src/words/data/list.txt", "head -5 README.md", "tail -n 2 src/words/data/list.txt",
    "tail -n +39 src/words/data/list.txt", "sed -n '2,4p' src/words/parse.py", "sed -n '39,$p' src/words/data/list.txt",
    "sed -n '/def/p' src/words/parse.py", "sed -n -e 3p README.md", "wc -l < /dev/null || echo none",
    "grep -n def src/words/parse.py", "grep -c word src/words/data/list.txt", "grep -i WORDS README.md",
    "grep -v word README.md", "grep -w parse src/words/parse.py", "grep -E 'a\\+|2 p' README.md src/words/parse.py",
    "grep 'small\\|parts' README.md", "grep '(small)' README.md", "grep -F 'a+|b' src/words/parse.py",
    "grep -o 'word [0-9]$' src/words/data/list.txt", "grep -n -A 1 -B 1 'def parse_all' src/words/parse.py",
    "grep -l parse src/words/parse.py tests/test_parse.py setup.py", "grep -m 2 word src/words/data/list.txt",
    "grep '[[:digit:]][[:space:]]parts' README.md", "grep -q nothing README.md || echo no", "cd src && ls words/*.py",
    "ls *.py", "cat README.md | head -2 | tail -1", "echo 'a b'  c", "grep -h parse src/words/*.py | wc -l",
    "ls missing 2>/dev/null || echo none", "cat setup.py; echo done # a remark", 'grep "re\\.find" src/words/parse.py',
)  # fmt: skip
SORTED = (
    "grep -rn parse .", "grep -r --include='*.py' parse src", "grep -rl words --exclude-dir=src .", "find . -name '*.py'",
    "find src -type d", "find . -maxdepth 1 -type f", "find . -name '*.txt' -o -name '*.md'",
    "find src -not -name '*.py' -type f",
    "find . -path './src/*' -iname 'PARSE*'", "find src -mindepth 2",
)  # fmt: skip
ESCAPES = (
    "cat ../secret", "cat /etc/passwd", "cat link", "cat folder/secret", "ls folder/", "cat absolute", "ls ..", "ls /", "ls ~",
    "cat ~/.bashrc", "find / -name secret", "find .. -name secret", "grep -r secret ..", "grep -r secret folder",
    "head folder/secret",
    "cat src/../../secret", "cat /repo/../secret", "cat /proc/self/environ", "cat /proc/1/root/etc/passwd", "head /dev/zero",
    "cat pipe", "cd .. && cat secret", "cd folder && ls && cat secret", "cat $(echo ../secret)", "cat `echo ../secret`",
    "cat $HOME/x",
    "cat < ../secret", "echo x > made", "echo x >> README.md", "cat README.md | tee made", "find . -exec cat ../secret ;",
    "find . -name README.md -delete", "find . -fprint made", "sed -i s/a/b/ README.md", "sed -n 'w made' README.md",
    "sed -n '1e cat ../secret' README.md", "sed -n 'r ../secret' README.md", "grep -f ../secret README.md",
    "bash -c 'cat ../secret'",
    "python3 -c 'print(open(\"../secret\").read())'", "cat ../sec*", "ls /*", "touch made & cat ../secret", "rm -rf .",
)  # fmt: skip
HOSTILE = ("grep -E '(a+)+$' trap", "cat big big big big", "find . -name '" + "*a" * 200 + "b'", "cat \0", "grep '[' README.md")
"""Not escapes: lines that would take all time or memory, or that are broken."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "words"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture
def trapped(folder: Path) -> Path:
    """The folder with links that lead out of it, a pipe, and files that are made to cost much."""
    (folder.parent / "secret").write_text(SECRET + "\n")
    (folder / "link").symlink_to("../secret")
    (folder / "folder").symlink_to("..")
    (folder / "absolute").symlink_to(folder.parent / "secret")
    os.mkfifo(folder / "pipe")
    (folder / "trap").write_text("a" * 40 + "!\n")
    (folder / "big").write_text(("x" * 999 + "\n") * 2_000)
    return folder


def real(line: str, folder: Path) -> list[str]:
    environment = {"LC_ALL": "C", "PATH": os.environ["PATH"]}
    made = subprocess.run(["sh", "-c", line], cwd=folder, capture_output=True, text=True, env=environment, check=False)
    return made.stdout.splitlines()


def interpreted(line: str, folder: Path) -> Result:
    return Shell(Folder(str(folder))).run(line)


def state(folder: Path) -> dict[str, str]:
    """Everything beside and in the folder, with the digests of files."""
    below = sorted(folder.parent.rglob("*"))
    return {str(p.relative_to(folder.parent)): file_digest(p) if p.is_file() and not p.is_symlink() else "" for p in below}


@pytest.mark.parametrize("line", [line for line in EQUAL if "/dev/null ||" not in line or "2>" in line])
def test_a_line_prints_what_the_real_tools_print(line: str, folder: Path) -> None:
    assert interpreted(line, folder).lines == real(line, folder)


@pytest.mark.parametrize("line", SORTED)
def test_a_walk_prints_the_lines_of_the_real_tools(line: str, folder: Path) -> None:
    assert sorted(interpreted(line, folder).lines) == sorted(real(line, folder))


def test_the_real_tools_do_leave_the_folder(trapped: Path) -> None:
    """What the next tests rule out is there to be had."""
    assert SECRET in real("cat link", trapped) and SECRET in real("cat ../secret", trapped)


@pytest.mark.parametrize("line", ESCAPES)
def test_no_escape_leaves_the_folder(line: str, trapped: Path) -> None:
    assert len(set(ESCAPES)) >= 40
    before = state(trapped)
    made = interpreted(line, trapped)
    said = "\n".join(made.lines + made.errors)
    assert SECRET not in said and "root:" not in said
    assert made.status != 0 or not made.lines or line == "ls folder/"
    assert state(trapped) == before


@pytest.mark.slow
@pytest.mark.parametrize("line", ESCAPES)
def test_no_escape_leaves_the_walls(line: str, trapped: Path) -> None:
    before = state(trapped)
    made = run_line(line, trapped)
    assert SECRET not in made.text and "root:" not in made.text
    assert state(trapped) == before


def test_a_line_behind_the_walls_is_that_of_the_interpreter(trapped: Path) -> None:
    for line in ("grep -rn parse src | head -2", "cd src && pwd", "cat link"):
        made, bare = run_line(line, trapped), interpreted(line, trapped)
        assert (made.text, made.status) == ("\n".join(bare.lines + bare.errors), bare.status)


def test_a_costly_line_ends_at_its_limit(trapped: Path) -> None:
    limits = Limits(wall_seconds=20.0, cpu_seconds=1, memory_mib=256, disk_mib=1)
    assert run_line(HOSTILE[0], trapped, limits).status == 124
    whole = run_line(HOSTILE[1], trapped, limits)
    assert "the rest is left out" in whole.text and len(whole.text) < 2 << 20


@pytest.mark.parametrize("line", HOSTILE[2:])
def test_a_broken_line_is_an_error_of_the_line(line: str, trapped: Path) -> None:
    made = interpreted(line, trapped)
    assert made.status != 0 or made.lines == []


def test_a_folder_that_is_none_and_a_line_that_is_too_long_are_reported(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a folder"):
        run_line("ls", tmp_path / "none")
    assert "at most 4096 are allowed" in run_line("ls " * 2000, tmp_path).text
