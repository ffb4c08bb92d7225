"""The plugin's options and markers, and the settings that options and `[tool.pairbench]` come to."""

import argparse
import dataclasses
from pathlib import Path

import pytest

from pairbench.config import Config, load_config
from pairbench.errors import UsageError
from pairbench.integrations.plugin.suite_files import SuiteFiles, named_places
from pairbench.suite.load import find_suites

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
