"""The plugin's options and markers, and the settings that options and `[tool.pairbench]` come to.

Which of the files that pytest comes across are suites.

Files of pytest-benchmark: a folder for each device, the environment in each file, and no comparison of unlike devices.
"""

import argparse
import ast
import dataclasses
import fnmatch
import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from pairbench.config import Config, load_config
from pairbench.errors import UsageError
from pairbench.model.environment import Device
from pairbench.suite.load import find_suites

_MENTIONS = re.compile(r"\bpairbench\b[\s\S]*\bOperator\b")


@dataclass(frozen=True, kw_only=True)
class SuiteFiles:
    """The rule: what the settings list is a suite, and so is what the command line names and what looks like one.

    A folder that only the command line names stands for the files in it, not for those in folders below: `pytest tests`
    must not go looking for suites among the data of tests. In it, what looks like a suite assigns an operator at its top
    level.
    """

    listed: tuple[Path, ...]
    """The suite files that the settings list, those in folders below a listed one too."""
    named: tuple[Path, ...]
    """Files and folders of the command line."""
    test_patterns: tuple[str, ...]
    """Names of test files, as pytest's `python_files` gives them; those are pytest's own."""

    def takes(self, file: Path) -> bool:
        """Return whether a file is a suite."""
        file = file.resolve()  # pytest keeps links as they are
        if file.suffix != ".py" or not file.is_file():
            return False
        if file in self.listed:
            return True
        if self.is_test(file):
            return False
        text = file.read_text(errors="replace") if file in self.named or file.parent in self.named else ""
        return _MENTIONS.search(text) is not None and (file in self.named or _assigns_an_operator(text))

    def is_test(self, file: Path) -> bool:
        """Return whether pytest would take a file that nobody named for one of tests."""
        known = any(fnmatch.fnmatch(file.name, pattern) for pattern in self.test_patterns)
        return known or file.name in ("conftest.py", "__init__.py")

    def in_reach(self) -> tuple[Path, ...]:
        """Return the suites that pytest can come across, as far as paths tell."""
        return tuple(dict.fromkeys(file for file in self._candidates() if self.takes(file)))

    def _candidates(self) -> Iterable[Path]:
        for place in self.named:
            if not place.is_dir():
                yield place
                continue
            yield from sorted(place.glob("*.py"))
            yield from (file for file in self.listed if file.is_relative_to(place))


@functools.cache
def _assigns_an_operator(text: str) -> bool:
    """Return whether a module does so at its top level; a text that is no Python may well be meant to."""
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError):
        return True
    calls = [node.value for node in module.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)]
    names = [getattr(call.func, "id", None) or getattr(call.func, "attr", None) for call in calls]
    return "Operator" in names


def named_places(arguments: Iterable[str], folder: Path) -> tuple[Path, ...]:
    """Return the files and folders that pytest's arguments name, such as `suites/conv.py::causal_conv3d[...]`."""
    return tuple((folder / re.split(r"::|\[", argument, maxsplit=1)[0]).resolve() for argument in arguments)


_UNSTEADY = ("hz_actual", "hz_actual_friendly")
"""The CPU's clock in the moment: with it no two files come from equal machines."""


def of_device(storage: str, device: Device) -> str:
    """Return where a device's files belong: by itself pytest-benchmark keeps those of all GPUs in one series.

    Args:
        storage: As `--benchmark-storage` has it, a path or a URI; one that is no folder is returned as it is.
        device: The device.
    """
    scheme, separator, path = storage.rpartition("://")
    if scheme not in ("", "file"):
        return storage
    return f"{scheme}{separator}{PurePosixPath(path) / device.slug}"


def describe_machine(machine_info: dict[str, Any], columns: Mapping[str, Any]) -> None:
    """Put an environment into what pytest-benchmark says of the machine, and take out what is never twice the same."""
    from pairbench.features.exchange.pytest_benchmark import KEY, steady

    machine_info[KEY] = steady(columns)
    for name in _UNSTEADY:
        if isinstance(machine_info.get("cpu"), dict):
            machine_info["cpu"].pop(name, None)


def refuse_unlike(machine_info: Mapping[str, Any], compared: Mapping[str, Any]) -> None:
    """Refuse a file of another device.

    Raises:
        UsageError: it is one.
    """
    from pairbench.features.exchange.pytest_benchmark import KEY

    ours, theirs = machine_info.get(KEY), compared.get("machine_info", {}).get(KEY)
    if not isinstance(ours, dict) or not isinstance(theirs, dict):
        return
    here, there = (side.get("device_name") for side in (ours, theirs))
    if here != there:
        raise UsageError(
            f"--benchmark-compare: the file of {compared.get('datetime', 'unknown time')} was measured on {there}, this is "
            f"{here}; only runs of one device model can be compared"
        )


MARKERS = {
    "baseline": "a pair's plain implementation",
    "variant": "a pair's optimised implementation",
    "edge": "a case that is verified and never timed",
    "smoke": "a small case, for any machine",
    "real": "a case with shapes of real models",
    "headline": "a case behind a published claim",
    "gpu": "needs a GPU",
}
"""Markers of collected pairs, each with its meaning."""


def add_options(parser: pytest.Parser) -> None:
    """Declare the options; they are those of `pairbench run` with a prefix."""
    group = parser.getgroup("pairbench", "operator pairs (pairbench)")
    group.addoption(
        "--pairbench-gate",
        nargs="?",
        const="auto",
        metavar="REFERENCE",
        help="Keep the session as a run of the store and judge it at the end as `pairbench compare` does: suspects are "
        "measured again, a regression fails the session. REFERENCE as `pairbench compare --help` says; write it with "
        "'='. Default: the newest comparable runs of the default branch.",
    )
    group.addoption(
        "--pairbench-save", action="store_true", help="Keep the session as a run of the store; a gate does so anyway."
    )
    group.addoption(
        "--pairbench-changed-since",
        metavar="COMMIT",
        help="Only pairs of operators that differ from those of a commit, branch or tag, uncommitted changes included, and a few "
        "untouched ones that tell whether the machine moved; all others are deselected.",
    )
    group.addoption(
        "--pairbench-store", metavar="STORE", help="A folder or URL. Default: as the settings say, or results."
    )
    group.addoption("--pairbench-device", metavar="DEVICE", default="auto", help="auto, cpu or cuda:N. Default: auto.")
    group.addoption(
        "--pairbench-tier",
        metavar="TIERS",
        help="edge, smoke, real, headline or several with commas. Default: edge, and smoke on a CPU or all on a GPU; "
        "`-m headline` takes those too.",
    )
    group.addoption(
        "--pairbench-mode", metavar="MODES", help="eager, compile, graph or several with commas. Default: eager."
    )
    group.addoption(
        "--pairbench-rounds", metavar="N", type=int, help="Worker processes that time each case. Default: 3."
    )
    group.addoption(
        "--pairbench-tf32",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="Let float32 products and convolutions use TF32, or not. Default: as the settings say, or not.",
    )
    group.addoption("--pairbench-timer", metavar="TIMER", help="auto, or do_bench for Triton's own function.")
    group.addoption(
        "--pairbench-latency",
        choices=("device", "call"),
        help="What pytest-benchmark's table and files show of a GPU: the device's latency, or that of whole calls, "
        "which the host may limit. Default: device, wherever it could be taken. On a CPU it is always the call.",
    )
    group.addoption(
        "--pairbench-timeout", metavar="SECONDS", type=float, help="For one implementation in one stage. Default: 300."
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a session that has pairs in it."""

    config: Config
    files: SuiteFiles
    device: str
    reference: str | None
    """What the gate compares with; None without a gate."""
    changed_since: str | None
    """The commit whose operators are compared; None to take all."""
    save: bool

    @classmethod
    def of(cls, config: pytest.Config) -> "Options":
        """Return what the command line and the settings say.

        Raises:
            UsageError: they contradict themselves or name what does not exist.
        """
        given = {name: config.getoption(f"pairbench_{name}") for name in _SETTINGS}
        start = config.invocation_params.dir
        settings = load_config(start, **given)
        places = ((settings.root / place).resolve() for place in settings.suites or ())
        files = SuiteFiles(
            listed=find_suites(tuple(place for place in places if place.exists())),
            named=named_places(config.args, start),
            test_patterns=tuple(config.getini("python_files")),
        )
        gate: str | None = config.getoption("pairbench_gate")
        if gate is not None:
            _refuse_path(gate, start)
            _check_gate(config)
        save = gate is not None or config.getoption("pairbench_save")
        return cls(
            config=settings,
            files=files,
            device=config.getoption("pairbench_device"),
            reference=gate,
            changed_since=config.getoption("pairbench_changed_since"),
            save=save,
        )


_SETTINGS = ("store", "tier", "mode", "rounds", "timer", "tf32", "timeout")


def distributes(config: pytest.Config) -> bool:
    """Return whether tests are run by several processes, this one or others."""
    return config.getoption("dist", "no") != "no" or hasattr(config, "workerinput")


def _check_gate(config: pytest.Config) -> None:
    if distributes(config):
        raise UsageError("--pairbench-gate needs times, and side by side nothing can be timed; leave out -n")
    if not config.pluginmanager.hasplugin("benchmark"):
        raise UsageError("--pairbench-gate needs pytest-benchmark; `pip install 'pairbench[pytest]'` brings it")
    for name in ("benchmark_disable", "benchmark_skip"):
        if config.getoption(name):
            raise UsageError(f"--pairbench-gate needs times; leave out --{name.replace('_', '-')}")


def _refuse_path(gate: str, start: Path) -> None:
    # argparse gives an option whose value may be left out the next word, whatever it is.
    if gate.endswith(".parquet") or not (start / gate).exists() or (start / gate / "records").is_dir():
        return
    raise UsageError(
        f"--pairbench-gate was given {gate!r}, which is a path and names no run; put the option behind the paths, or write "
        "--pairbench-gate=REFERENCE"
    )
