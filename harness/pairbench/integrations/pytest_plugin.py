"""The pytest plugin: suites are collected like test files, and pytest-benchmark does its own work on pairbench's numbers.

Loaded in every pytest run of an environment with pairbench in it, so nothing heavy is imported before pytest comes
across a suite.
"""

import contextlib
from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from pairbench.errors import PairbenchError
from pairbench.integrations.plugin.options import MARKERS, Options, add_options, distributes, refuse_unlike

if TYPE_CHECKING:
    from pairbench.integrations.plugin.session import PluginSession

_PLUGIN_SESSION = pytest.StashKey["PluginSession"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
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
            # Other processes run all tests, and each would fail by itself because of a wrong option.
            PluginSession.open(config, options, ()).close()
            return
        plugin_session = PluginSession.open(config, options, files)
    config.stash[_PLUGIN_SESSION] = plugin_session
    config.add_cleanup(plugin_session.close)


@contextlib.contextmanager
def _usage() -> Iterator[None]:
    try:
        yield
    except PairbenchError as error:
        raise pytest.UsageError(f"pairbench: {error}") from None


def _plugin_session(config: pytest.Config) -> "PluginSession | None":
    return config.stash.get(_PLUGIN_SESSION, None)


def pytest_report_header(config: pytest.Config) -> str | None:
    plugin_session = _plugin_session(config)
    return plugin_session.header() if plugin_session else None


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Any, parent: pytest.Collector) -> Generator[None, list[Any], list[Any]]:
    """Collect a suite as such, and not also as a file of tests that the command line names."""
    collectors = yield
    plugin_session = _plugin_session(parent.config)
    return plugin_session.collect(file_path, parent, collectors) if plugin_session else collectors


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if plugin_session := _plugin_session(config):
        with _usage():
            plugin_session.leave_out(items)


def pytest_collection_finish(session: pytest.Session) -> None:
    if plugin_session := _plugin_session(session.config):
        plugin_session.select(session.items)


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    plugin_session = _plugin_session(item.config)
    return True if plugin_session and plugin_session.run(item, nextitem) else None


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if (plugin_session := _plugin_session(session.config)) and (status := plugin_session.finish(session)) is not None:
        session.exitstatus = status


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any) -> None:
    if plugin_session := _plugin_session(terminalreporter.config):
        plugin_session.summarise(terminalreporter)


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    if plugin_session := _plugin_session(config):
        with _usage():
            plugin_session.describe_machine(machine_info)


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_json(config: pytest.Config, output_json: dict[str, Any]) -> None:
    if plugin_session := _plugin_session(config):
        plugin_session.complete(output_json)


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_benchmark_compare_machine_info(
    config: pytest.Config, machine_info: Mapping[str, Any], compared_benchmark: Mapping[str, Any]
) -> None:
    if _plugin_session(config):
        with _usage():
            refuse_unlike(machine_info, compared_benchmark)
