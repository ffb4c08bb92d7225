"""Which module may import what, read from the import statements; the tables below are the rule.

Imports inside functions and under TYPE_CHECKING count like all others: a deferred import is still a dependency.
"""

import ast
import functools
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "harness" / "pairbench"

# Room (a folder or a file of the package; the longest name that fits counts) -> the rooms of ours that it may import.
# They stand in the order of the house: a straight way down.
_CORE = "workflow report execute.parent execute store analyze plan config suite model stats errors own_folders"
BELOW: dict[str, str] = {
    "cli": f"integrations interface site features {_CORE}",
    "integrations": f"features {_CORE}",
    "interface": f"features {_CORE}",
    "site": f"features {_CORE}",
    "features": _CORE,
    "workflow": "report execute.parent execute store analyze plan config suite model stats errors own_folders",
    "report": "analyze model stats errors",
    # These three meet only in model's values; workflow joins them.
    "execute.parent": "execute model stats errors own_folders",
    "execute.worker": "execute suite model stats errors own_folders",
    "execute": "model stats errors",
    "store": "model stats errors own_folders",
    "analyze": "model stats errors",
    "plan": "model errors",
    "config": "model errors",
    "suite": "model errors",
    "model": "stats errors",
    "stats": "",
    "errors": "",
    "own_folders": "",
    "__init__": "interface execute.worker model",
    "__main__": "cli",
}
OURS = {room: {room, *below.split()} for room, below in BELOW.items()}

# Feature -> the features that it may import: none, but for those that compare two commits side by side as `ab` does.
FEATURES = {"backfill": {"ab"}, "bisect": {"ab"}}
# What the site shows of features.
SHOWN = {"breakdown"}

# Distribution outside the standard library, by the name it is imported under -> the rooms that may import it.
OTHERS: dict[str, frozenset[str]] = {
    "_pytest": frozenset({"integrations"}),
    "cryptography": frozenset({"features.fleet"}),
    "dask": frozenset({"features.fleet"}),
    "distributed": frozenset({"features.fleet"}),
    "filelock": frozenset({"execute.worker"}),
    "jinja2": frozenset({"site"}),
    "markupsafe": frozenset({"site"}),
    "matplotlib": frozenset({"interface", "report"}),
    "numpy": frozenset({"analyze", "execute", "features", "report", "stats", "store"}),
    "packaging": frozenset({"model"}),
    "safetensors": frozenset({"execute.worker.corpora"}),
    "pandas": frozenset({"features", "integrations", "interface", "report", "store"}),
    "plotly": frozenset({"site"}),
    "pyarrow": frozenset({"store"}),
    "pynvml": frozenset({"execute.worker"}),
    "pytest": frozenset({"integrations"}),
    "pytest_benchmark": frozenset({"integrations"}),
    "rich": frozenset({"features", "report", "workflow"}),
    "scipy": frozenset({"analyze", "execute", "stats"}),
    "torch": frozenset({"execute.worker"}),
    "triton": frozenset({"execute.worker"}),
    "typer": frozenset({"cli"}),
}

DISTRIBUTION = {"_pytest": "pytest", "pynvml": "nvidia-ml-py", "pytest_benchmark": "pytest-benchmark"}

MAX_LINES = 500
MAX_FILES = 25
SMALL = 60
# The suites' folders are rooms, too.
HOUSES = (PACKAGE, ROOT / "suites")

FILES = sorted(PACKAGE.rglob("*.py"))


def name_of(file: Path) -> str:
    """Return `execute.protocol` for harness/pairbench/execute/protocol.py."""
    parts = file.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    return next(room for room in sorted(OURS, key=len, reverse=True) if f"{module}.".startswith(f"{room}."))


MODULES = {name_of(file): file for file in FILES}


@functools.cache
def imports(file: Path) -> tuple[tuple[int, str], ...]:
    """Return line and full name of everything that a file imports: `from a import b` as `a.b`."""
    found = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: relative import, expected `from pairbench...`"
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
    return tuple(found)


def ours(file: Path) -> Iterator[tuple[int, str]]:
    """Yield line and module, such as `model.case`, of what a file imports from the package; '' is its root."""
    for line, name in imports(file):
        root, _, rest = name.partition(".")
        if root == "pairbench":
            candidates = [rest, rest.rpartition(".")[0]]
            yield line, next((module for module in candidates if module in MODULES), "")


def test_every_room_has_its_rule() -> None:
    rooms = {module.split(".")[0] for module in MODULES}
    assert rooms <= OURS.keys(), "a new room: say in BELOW what it may import, and in ARCHITECTURE.md what it is for"


def test_the_way_is_straight_down() -> None:
    """The table itself has no way up: each room's list holds only rooms that stand below it."""
    order = list(BELOW)
    upwards = [
        f"{room} -> {below}"
        for room, several in BELOW.items()
        for below in several.split()
        if order.index(below) < order.index(room) and not room.startswith("__")
    ]
    assert not upwards


def test_imports_of_ours_go_one_way() -> None:
    wrong = [
        f"{module}, line {line}, imports {imported}; {room_of(module)} may import {sorted(OURS[room_of(module)])}"
        for module, file in MODULES.items()
        for line, imported in ours(file)
        if imported and room_of(imported) not in OURS[room_of(module)]
    ]
    assert not wrong


def test_features_leave_each_other_alone() -> None:
    wrong = []
    for module, file in MODULES.items():
        home, _, rest = module.partition(".")
        feature = rest.split(".")[0]
        allowed = {"features": {feature, *FEATURES.get(feature, ())}, "site": SHOWN}.get(home)
        for line, imported in ours(file):
            if allowed is not None and imported.startswith("features.") and imported.split(".")[1] not in allowed:
                wrong.append(f"{module}, line {line}, imports {imported}")
    assert not wrong


def test_nobody_imports_the_root() -> None:
    """Cycles grow through a package's root; import from the module that owns the name. All may ask for the version."""
    wrong = [
        f"{module}, line {line}"
        for module, file in MODULES.items()
        for line, imported in ours(file)
        if not imported and (line, "pairbench.__version__") not in imports(file)
    ]
    assert not wrong


def test_imports_of_others_stay_in_their_rooms() -> None:
    wrong = [
        f"{module}, line {line}, imports {root}, which only {sorted(OTHERS.get(root, [])) or 'nobody'} may"
        for module, file in MODULES.items()
        for line, name in imports(file)
        if (root := name.split(".")[0]) != "pairbench" and root not in sys.stdlib_module_names
        if not any(f"{module}.".startswith(f"{room}.") for room in OTHERS.get(root, ()))
    ]
    assert not wrong


def test_what_is_imported_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lines = project["dependencies"] + extras["pytest"] + extras["fleet"] + extras["corpora"]
    declared = {re.split(r"[^A-Za-z0-9_-]", line)[0] for line in lines}
    assert {DISTRIBUTION.get(name, name) for name in OTHERS} == declared


def test_no_cycles() -> None:
    graph = {module: {to for _, to in ours(file) if to and to != module} for module, file in MODULES.items()}
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join([*path[path.index(module) :], module])
        if module not in done:
            for imported in sorted(graph[module]):
                visit(imported, (*path, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def test_files_stay_short() -> None:
    """A file holds one subject; past some 500 lines it usually holds two."""
    files = [file for house in HOUSES for file in house.rglob("*.py")]
    lengths = {str(file.relative_to(ROOT)): len(file.read_text(encoding="utf-8").splitlines()) for file in files}
    assert not {name: lines for name, lines in lengths.items() if lines > MAX_LINES}, "split it"


def test_rooms_stay_small() -> None:
    """A room holds what one reader needs at once."""
    folders = {folder for house in HOUSES for folder in (house, *house.rglob("*")) if folder.is_dir()}
    crowded = {str(folder.relative_to(ROOT)): len(list(folder.glob("*.py"))) for folder in folders}
    assert not {folder: files for folder, files in crowded.items() if files > MAX_FILES}, "make rooms of it"


def test_a_small_file_has_several_readers() -> None:
    """A file of some lines that one other of its room imports is a part of that one."""
    users: dict[str, set[str]] = {}
    for module, file in MODULES.items():
        for _, imported in ours(file):
            if imported and imported != module:
                users.setdefault(imported, set()).add(module)
    folder = {module: file.parent for module, file in MODULES.items()}
    wrong = [
        f"{module} belongs into {user}"
        for module, file in MODULES.items()
        if len(file.read_text(encoding="utf-8").splitlines()) < SMALL
        for user in users.get(module, ())
        if len(users[module]) == 1 and folder[user] == folder[module] and not file.name.startswith("__")
    ]
    assert not wrong


def test_workers_are_started_as_modules() -> None:
    """A worker that is started by its path has its folder first on sys.path, where modules hide libraries of the same name."""
    pairs = {
        (first.value, second.value)
        for module, file in MODULES.items()
        if module.startswith("execute")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.List | ast.Tuple)
        for first, second in zip(node.elts, node.elts[1:], strict=False)
        if isinstance(first, ast.Constant) and isinstance(second, ast.Constant)
    }
    started = {str(second).removeprefix("pairbench.") for first, second in pairs if first == "-m"}
    assert started, "execute starts no worker with [sys.executable, '-m', 'pairbench.execute...']"
    assert started <= MODULES.keys()


@pytest.mark.parametrize(
    ("modules", "heavy"),
    [
        ([""], set(OTHERS)),
        (["cli.app"], {"numpy", "pandas", "pyarrow", "scipy", "torch"}),
        (["cli.app", "workflow.record"], {"cryptography", "dask", "distributed"}),
        ([module for module in MODULES if module.startswith("execute.parent")], {"torch", "triton", "pynvml"}),
    ],
    ids=["the package", "a command's help", "the command line", "the parent of workers"],
)
def test_what_is_heavy_is_not_loaded(modules: list[str], heavy: set[str]) -> None:
    """Not by the import statements alone: modules are loaded, and what came with them is looked at."""
    names = [f"pairbench.{module}".rstrip(".") for module in modules]
    code = f"import importlib, sys; [importlib.import_module(name) for name in {names}]; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert names and {*names} <= {*loaded} and not heavy & {*loaded}


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="one process has nothing to share out")
def test_what_tests_share_is_made_once(request: pytest.FixtureRequest) -> None:
    """Versions of pytest and pytest-xdist that do not fit lose the groups without a word, and tests take half as long again."""
    assert request.node.nodeid.endswith("@tests/test_architecture.py")
