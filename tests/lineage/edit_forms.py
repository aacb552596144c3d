"""Forms of edits that may change bytes: files beside those of `test_fingerprint.FILES`, and the edit (file, old, new)."""

BASE = "WIDTH = 3\n"
STAGE, TABLE = "datakit/stage.py", "from pathlib import Path\n\nTABLE = "
IMPORT = "import importlib\n\n\ndef run(name):\n    importlib.import_module({}).f()\n"
FORMS: dict[str, tuple[dict[str, str], str, str, str]] = {
    "a module by a literal's name": (
        {STAGE: 'NAME = "datakit.dynamic"\n' + IMPORT.format("NAME")}, "datakit/dynamic.py", "return 1", "return 2"),
    "a module beside by a relative name": (
        {STAGE: IMPORT.format('".dynamic", __package__')}, "datakit/dynamic.py", "return 1", "return 2"),
    "a module by a sum": ({STAGE: IMPORT.format('"datakit." + name')}, "datakit/dynamic.py", "return 1", "return 2"),
    "a module by an f-string": ({STAGE: IMPORT.format('f"datakit.{name}"')}, "datakit/dynamic.py", "return 1", "return 2"),
    "a data file in a sub-folder": (
        {STAGE: TABLE + 'Path(__file__).parent / "tables" / "x.json"\n', "datakit/tables/x.json": "[1]"},
        "datakit/tables/x.json", "1", "2"),
    "a data file below data/": (
        {STAGE: TABLE + 'Path("data") / "lists" / "words.txt"\n', "data/lists/words.txt": "one"},
        "data/lists/words.txt", "one", "two"),
    "a file by f-string": (
        {STAGE: "from pathlib import Path\n\n\ndef run(n):\n    return Path(__file__).with_name(f'{n}.csv')\n"},
        "datakit/table.csv", "a,b", "a,c"),
    "a file without a dot": (
        {STAGE: TABLE + 'Path(__file__).with_name("WORDS")\n', "datakit/WORDS": "one"}, "datakit/WORDS", "one", "two"),
    "a constant under if": ({"datakit/names.py": BASE + "if True:\n    WIDTH = 4\n"}, "datakit/names.py", "4", "5"),
    "a constant under try": (
        {"datakit/names.py": BASE + "try:\n    WIDTH = 4\nexcept ImportError:\n    pass\n"}, "datakit/names.py", "4", "5"),
    "a constant in a tuple": ({"datakit/names.py": BASE + "WIDTH, OTHER = 4, 1\n"}, "datakit/names.py", "4", "5"),
    "a constant in a loop": ({"datakit/names.py": BASE + "for WIDTH in (4,):\n    pass\n"}, "datakit/names.py", "4", "5"),
    "a constant by a walrus": ({"datakit/names.py": BASE + "OTHER = (WIDTH := 4)\n"}, "datakit/names.py", "4", "5"),
    "a global constant": (
        {"datakit/names.py": BASE + "\n\ndef later():\n    global WIDTH\n    WIDTH = 4\n"}, "datakit/names.py", "4", "5"),
    "a constant of a module that acts": (
        {"datakit/names.py": BASE + "globals().update(WIDTH=4)\n"}, "datakit/names.py", "4", "5"),
    "an attribute of another module": (
        {"datakit/names.py": "from datakit import lazy\n\n" + BASE + "lazy.f = lambda: 4\n"}, "datakit/names.py", "4", "5"),
    "a compiled module": (
        {STAGE: "from datakit import fast\n", "datakit/fast.cpython-312-x86_64-linux-gnu.so": "one"},
        "datakit/fast.cpython-312-x86_64-linux-gnu.so", "one", "two"),
    "a module of scenarios": (
        {STAGE: "from scenarios.world import f\n", "scenarios/__init__.py": "", "scenarios/world.py": "def f(): return 1\n"},
        "scenarios/world.py", "1", "2"),
    "a module at the root": (
        {STAGE: "import rootling\n\nrootling.f()\n", "rootling.py": "def f(): return 1\n"}, "rootling.py", "1", "2"),
    "a script by its path": ({STAGE: 'SCRIPT = "tools/run.py"\n', "tools/run.py": "print(1)\n"}, "tools/run.py", "1", "2"),
    "a module in a command": (
        {STAGE: 'COMMAND = ["python", "-m", "datakit.dynamic"]\n'}, "datakit/dynamic.py", "return 1", "return 2"),
}  # fmt: skip
"""Edit forms that a red team found to be missed (2026-11-24), and siblings: files, then the edit."""
DYNAMIC = ("datakit/dynamic.py", "return 1", "return 2")
TABLE_EDIT = ("datakit/table.csv", "a,b", "a,c")
NAMES_EDIT = ("datakit/names.py", "4", "5")
SIBLINGS: dict[str, tuple[dict[str, str], str, str, str]] = {
    "a file by importlib.resources": (
        {STAGE: 'from importlib.resources import files\n\nT = files("datakit") / "table.csv"\n'},
        *TABLE_EDIT,
    ),
    "a file below a package by importlib.resources": (
        {
            STAGE: 'from importlib.resources import files\n\nT = files("datakit").joinpath("tables/x.json")\n',
            "datakit/tables/x.json": "[1]",
        },
        "datakit/tables/x.json",
        "1",
        "2",
    ),
    "a file by pkgutil": ({STAGE: 'import pkgutil\n\nT = pkgutil.get_data(__package__, "table.csv")\n'}, *TABLE_EDIT),
    "a script by runpy": (
        {STAGE: 'import runpy\nfrom pathlib import Path\n\nrunpy.run_path(str(Path(__file__).with_name("script.py")))\n'},
        "datakit/script.py",
        "print(1)",
        "print(2)",
    ),
    "a module by runpy": ({STAGE: 'import runpy\n\n\ndef run():\n    runpy.run_module("datakit.dynamic")\n'}, *DYNAMIC),
    "a module by a keyword argument": (
        {STAGE: 'import importlib\n\n\ndef run():\n    importlib.import_module(name="datakit.dynamic")\n'},
        *DYNAMIC,
    ),
    "a module by __import__": ({STAGE: 'X = __import__("datakit.dynamic", fromlist=["f"])\n'}, *DYNAMIC),
    "a module by an importer of another name": (
        {STAGE: 'from importlib import import_module as load\n\nload("datakit.dynamic").f()\n'},
        *DYNAMIC,
    ),
    "a module by an importer that a name keeps": (
        {STAGE: 'import importlib\n\nload = importlib.import_module\nload("datakit.dynamic").f()\n'},
        *DYNAMIC,
    ),
    "a module by a tuple of names": (
        {STAGE: 'import importlib\n\nfor name in ("datakit.dynamic", "datakit.lazy"):\n    importlib.import_module(name)\n'},
        *DYNAMIC,
    ),
    "a module by a dictionary of names": (
        {STAGE: 'import importlib\n\nNAMES = {"a": "datakit.dynamic"}\nX = importlib.import_module(NAMES["a"])\n'},
        *DYNAMIC,
    ),
    "a module by format": (
        {STAGE: 'import importlib\n\n\ndef run(n):\n    return importlib.import_module("datakit.{}".format(n))\n'},
        *DYNAMIC,
    ),
    "a module by join": (
        {STAGE: 'import importlib\n\n\ndef run(n):\n    return importlib.import_module(".".join(["datakit", n]))\n'},
        *DYNAMIC,
    ),
    "a module by a default argument": (
        {STAGE: 'import importlib\n\n\ndef run(n="datakit.dynamic"):\n    return importlib.import_module(n)\n'},
        *DYNAMIC,
    ),
    "a module in a command of one text": ({STAGE: 'COMMAND = "python -m datakit.dynamic --x"\n'}, *DYNAMIC),
    "a script in a command of one text": (
        {STAGE: 'COMMAND = "python datakit/script.py --x"\n'},
        "datakit/script.py",
        "print(1)",
        "print(2)",
    ),
    "a constant by a star": ({STAGE: "from datakit.names import *\n"}, "datakit/names.py", "WIDTH = 3", "WIDTH = 4"),
    "a module that sys.modules has": (
        {STAGE: 'import sys\n\nimport datakit.lazy\n\n\ndef run():\n    return sys.modules["datakit.dynamic"]\n'},
        *DYNAMIC,
    ),
    "a package's own code": (
        {STAGE: "from datakit.room import f\n", "datakit/room/__init__.py": "def f():\n    return 1\n"},
        "datakit/room/__init__.py",
        "1",
        "2",
    ),
    "a constant that is added to": ({"datakit/names.py": BASE + "WIDTH += 4\n"}, *NAMES_EDIT),
    "a constant that is annotated twice": ({"datakit/names.py": "WIDTH: int = 3\nWIDTH: int = 4\n"}, *NAMES_EDIT),
    "a constant that a match binds": ({"datakit/names.py": BASE + "match 4:\n    case WIDTH:\n        pass\n"}, *NAMES_EDIT),
    "a constant that a with binds": (
        {"datakit/names.py": "import contextlib\n\n" + BASE + "with contextlib.nullcontext(4) as WIDTH:\n    pass\n"},
        *NAMES_EDIT,
    ),
    "a constant by an import": (
        {"datakit/names.py": BASE + "from datakit.four import four as WIDTH\n", "datakit/four.py": "four = 4\n"},
        "datakit/four.py",
        "4",
        "5",
    ),
    "a constant by a function of its name": ({"datakit/names.py": BASE + "\n\ndef WIDTH():\n    return 4\n"}, *NAMES_EDIT),
    "a constant by a class of its name": ({"datakit/names.py": BASE + "\n\nclass WIDTH:\n    x = 4\n"}, *NAMES_EDIT),
    "a constant that an except binds": (
        {"datakit/names.py": BASE + "try:\n    raise ValueError(4)\nexcept ValueError as WIDTH:\n    kept = WIDTH\n"},
        *NAMES_EDIT,
    ),
    "a constant that a comprehension binds": ({"datakit/names.py": BASE + "[WIDTH := each for each in (4,)]\n"}, *NAMES_EDIT),
    "a constant by exec": ({"datakit/names.py": BASE + 'exec("WIDTH = 4")\n'}, *NAMES_EDIT),
    "a constant by vars": ({"datakit/names.py": BASE + 'vars()["WIDTH"] = 4\n'}, *NAMES_EDIT),
    "a constant by a call in an assignment": ({"datakit/names.py": BASE + "_ = globals().update(WIDTH=4)\n"}, *NAMES_EDIT),
    "a constant by a call in a default": (
        {"datakit/names.py": BASE + "\n\ndef f(x=globals().update(WIDTH=4)):\n    return x\n"},
        *NAMES_EDIT,
    ),
    "a constant by a call in a decorator": (
        {
            "datakit/names.py": BASE
            + '\n\n@globals().setdefault("keep", lambda f: globals().update(WIDTH=4))\ndef f():\n    return 1\n'
        },
        *NAMES_EDIT,
    ),
    "a constant by a call in a class": (
        {"datakit/names.py": BASE + "\n\nclass A:\n    globals().update(WIDTH=4)\n"},
        *NAMES_EDIT,
    ),
    "a constant by a call in a base": (
        {"datakit/names.py": BASE + "\n\nclass A(globals().update(WIDTH=4) or object):\n    pass\n"},
        *NAMES_EDIT,
    ),
    "a constant by a call in an assert": (
        {"datakit/names.py": BASE + "assert globals().update(WIDTH=4) is None\n"},
        *NAMES_EDIT,
    ),
    "a constant by a call in a condition": (
        {"datakit/names.py": BASE + "if globals().update(WIDTH=4):\n    pass\n"},
        *NAMES_EDIT,
    ),
    "a constant by a module's __getattr__": (
        {"datakit/names.py": "DEPTH = 1\n\n\ndef __getattr__(name):\n    return 4\n"},
        *NAMES_EDIT,
    ),
}
"""Forms of our own (2026-11-26); 23 of these 38 were missed when they were written."""
