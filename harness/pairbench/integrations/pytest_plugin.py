"""The pytest plugin: suites are collected like test files, and pytest-benchmark does its own work on pairbench's numbers.

Loaded in every pytest run of an environment with pairbench in it, so nothing heavy is imported before pytest comes
across a suite.
"""

import contextlib
from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from pairbench.errors import PairbenchError
from pairbench.integrations.plugin.options import Options, add_options, distributes

if TYPE_CHECKING:
    from pairbench.integrations.plugin.session import PluginSession

_SITTING = pytest.StashKey["PluginSession"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Find out whether there are suites in reach; if so, open a sitting."""
    from pairbench.integrations.plugin.markers import MARKERS

    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning} (pairbench)")
    if config.option.help or config.option.version:
        return
    with _usage():
        options = Options.of(config)
        files = options.files.in_reach()
        if not files:
            return
        from pairbench.integrations.plugin.session import PluginSession

        if distributes(config) and not hasattr(config, "workerinput"):
            # All tests are left to other processes, each of which would fail for itself for an option that is wrong.
            PluginSession.open(config, options, ()).close()
            return
        sitting = PluginSession.open(config, options, files)
    config.stash[_SITTING] = sitting
    config.add_cleanup(sitting.close)


@contextlib.contextmanager
def _usage() -> Iterator[None]:
    try:
        yield
    except PairbenchError as error:
        raise pytest.UsageError(f"pairbench: {error}") from None


def _sitting(config: pytest.Config) -> "PluginSession | None":
    return config.stash.get(_SITTING, None)


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say on what pairs are measured."""
    sitting = _sitting(config)
    return sitting.header() if sitting else None


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Any, parent: pytest.Collector) -> Generator[None, list[Any], list[Any]]:
    """Collect a suite as such, and not also as a file of tests because somebody named it."""
    found = yield
    sitting = _sitting(parent.config)
    return sitting.collect(file_path, parent, found) if sitting else found


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tiers that nobody asked for."""
    if sitting := _sitting(config):
        sitting.leave_out_tiers(items)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Take in what is going to be run."""
    if sitting := _sitting(session.config):
        sitting.want(session.items)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """End the measuring, and judge it where a gate is asked for."""
    if (sitting := _sitting(session.config)) and (status := sitting.finish(session)) is not None:
        session.exitstatus = status


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the gate's verdicts."""
    if sitting := _sitting(terminalreporter.config):
        sitting.summarise(terminalreporter)


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    """Add the device, the driver and the versions."""
    if sitting := _sitting(config):
        with _usage():
            sitting.describe_machine(machine_info)


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_json(config: pytest.Config, output_json: dict[str, Any]) -> None:
    """Add what a store would know besides."""
    if sitting := _sitting(config):
        sitting.complete(output_json)


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_benchmark_compare_machine_info(
    config: pytest.Config, machine_info: Mapping[str, Any], compared_benchmark: Mapping[str, Any]
) -> None:
    """Refuse to compare with another device."""
    if _sitting(config):
        from pairbench.integrations.plugin.storage import refuse_unlike

        with _usage():
            refuse_unlike(machine_info, compared_benchmark)
