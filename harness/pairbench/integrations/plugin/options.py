"""The plugin's options and markers, the settings that they come to, and the rule of which files are suites."""

import argparse
import ast
import contextlib
import fnmatch
import functools
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from pairbench.config import Config, load_config
from pairbench.errors import PairbenchError, UsageError
from pairbench.model.environment import Device
from pairbench.model.plain import Value
from pairbench.suite.definitions import is_problem
from pairbench.suite.modules import declares_operators, find_suites

MARKERS = {
    "baseline": "a pair's plain implementation",
    "variant": "a pair's optimised implementation",
    "edge": "a case that is verified and never timed",
    "smoke": "a small case, for any machine",
    "real": "a case with shapes of real models",
    "headline": "a case behind a published claim",
    "gpu": "needs a GPU",
}
OPTIONS: dict[str, dict[str, Any]] = {  # without the prefix `--pairbench-`, as argparse takes them
    "gate": {
        "nargs": "?",
        "const": "auto",
        "metavar": "REFERENCE",
        "help": "Keep the session as a run of the store and judge it at the end as `pairbench compare` does: suspects are "
        "measured again, a regression fails the session. REFERENCE as `pairbench compare --help` says; write it with "
        "'='. Default: the newest comparable runs of the default branch.",
    },
    "save": {"action": "store_true", "help": "Keep the session as a run of the store; a gate does so anyway."},
    "changed-since": {
        "metavar": "COMMIT",
        "help": "Only pairs of operators that differ from those of a commit, branch or tag, uncommitted changes included, and a few "
        "untouched ones that tell whether the machine moved; all others are deselected.",
    },
    "store": {"metavar": "STORE", "help": "A folder or URL. Default: as the settings say, or results."},
    "device": {"metavar": "DEVICE", "default": "auto", "help": "auto, cpu or cuda:N. Default: auto."},
    "tier": {
        "metavar": "TIERS",
        "help": "edge, smoke, real, headline or several with commas. Default: edge, and smoke on a CPU or all on a GPU; "
        "`-m headline` takes those too.",
    },
    "mode": {"metavar": "MODES", "help": "eager, compile, graph or several with commas. Default: eager."},
    "rounds": {"metavar": "N", "type": int, "help": "Worker processes that time each case. Default: 3."},
    "tf32": {
        "action": argparse.BooleanOptionalAction,
        "default": None,
        "help": "Let float32 products and convolutions use TF32, or not. Default: as the settings say, or not.",
    },
    "timer": {"metavar": "TIMER", "help": "auto, or do_bench for Triton's own function."},
    "latency": {
        "choices": ("device", "call"),
        "help": "What pytest-benchmark's table and files show of a GPU: the device's latency, or that of whole calls, "
        "which the host may limit. Default: device, wherever it could be taken. On a CPU it is always the call.",
    },
    "timeout": {"metavar": "SECONDS", "type": float, "help": "For one implementation in one stage. Default: 300."},
}
# The options that are settings, by the names that they have in `[tool.pairbench]`, too.
_SETTINGS = ("store", "tier", "mode", "rounds", "timer", "tf32", "timeout")


class SuiteFiles(Value):
    """The rule of which files are suites: those that the settings list, and those that the command line names and that look like one."""

    # A folder that only the command line names stands for the files in it, not for those in folders below: `pytest tests` must not look
    # for suites among the data of tests. A file of such a folder looks like a suite if it assigns an operator at its top level.

    listed: tuple[Path, ...]  # the suite files that the settings list, those in folders below a listed one included
    named: tuple[Path, ...]  # files and folders of the command line
    test_patterns: tuple[str, ...]  # patterns of test files, pytest's `python_files`

    def takes(self, file: Path) -> bool:
        file = file.resolve()  # pytest keeps links as they are
        if file in self.listed:
            return file.is_file()
        if file.suffix != ".py" or not file.is_file():
            return file in self.named and is_problem(file)
        named = file in self.named
        if self.is_test(file) or not (named or file.parent in self.named):
            return False
        text = file.read_text(errors="replace")
        return declares_operators(text) and (named or _assigns_an_operator(text))

    def is_test(self, file: Path) -> bool:
        matches = any(fnmatch.fnmatch(file.name, pattern) for pattern in self.test_patterns)
        return matches or file.name in ("conftest.py", "__init__.py")

    def in_reach(self) -> tuple[Path, ...]:
        """Return the suites that pytest can come across, as far as paths tell."""
        files: list[Path] = []
        for place in self.named:
            listed = (file for file in self.listed if file.is_relative_to(place))
            files += [*sorted(place.glob("*.py")), *listed] if place.is_dir() else [place]
        return tuple(dict.fromkeys(file for file in files if self.takes(file)))


@functools.cache
def _assigns_an_operator(text: str) -> bool:
    """Return whether a module assigns an operator at its top level; text that is no Python may be meant to."""
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError):
        return True
    calls = [node.value for node in module.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)]
    names = [getattr(call.func, "id", None) or getattr(call.func, "attr", None) for call in calls]
    return "Operator" in names


def of_device(storage: str, device: Device) -> str:
    """Return a device's folder in a storage of pytest-benchmark, which keeps all GPUs in one series; another URI stays as it is."""
    scheme, separator, path = storage.rpartition("://")
    return f"{scheme}{separator}{PurePosixPath(path) / device.slug}" if scheme in ("", "file") else storage


class Options(Value):
    config: Config
    files: SuiteFiles
    device: str
    reference: str | None  # the reference of the gate; None without a gate
    changed_since: str | None  # the commit since which operators must have changed; None to take all
    save: bool

    @classmethod
    def of(cls, config: pytest.Config) -> "Options":
        start = config.invocation_params.dir
        settings = load_config(start, **{name: config.getoption(f"pairbench_{name}") for name in _SETTINGS})
        places = ((settings.root / place).resolve() for place in settings.suites or ())
        listed = find_suites(tuple(place for place in places if place.exists()))
        # Such as suites/conv.py::causal_conv3d[...].
        named = tuple((start / re.split(r"::|\[", one, maxsplit=1)[0]).resolve() for one in config.args)
        files = SuiteFiles(listed=listed, named=named, test_patterns=tuple(config.getini("python_files")))
        gate: str | None = config.getoption("pairbench_gate")
        if gate is not None:
            if not gate.endswith(".parquet") and (start / gate).exists() and not (start / gate / "records").is_dir():
                # argparse gives an option whose value may be left out the next word, whatever it is.
                advice = "put the option behind the paths, or write --pairbench-gate=REFERENCE"
                raise UsageError(f"--pairbench-gate was given {gate!r}, which is a path and names no run; {advice}")
            if distributes(config):
                raise UsageError("--pairbench-gate needs times, and side by side nothing can be timed; leave out -n")
            if not config.pluginmanager.hasplugin("benchmark"):
                raise UsageError("--pairbench-gate needs pytest-benchmark; `pip install 'pairbench[pytest]'` brings it")
            for name in ("benchmark_disable", "benchmark_skip"):
                if config.getoption(name):
                    raise UsageError(f"--pairbench-gate needs times; leave out --{name.replace('_', '-')}")
        device, since = config.getoption("pairbench_device"), config.getoption("pairbench_changed_since")
        save = gate is not None or config.getoption("pairbench_save")
        return cls(config=settings, files=files, device=device, reference=gate, changed_since=since, save=save)


def distributes(config: pytest.Config) -> bool:
    """Return whether several processes run the tests, this one or others."""
    return config.getoption("dist", "no") != "no" or hasattr(config, "workerinput")


@contextlib.contextmanager
def usage() -> Iterator[None]:
    try:
        yield
    except PairbenchError as error:
        raise pytest.UsageError(f"pairbench: {error}") from None
