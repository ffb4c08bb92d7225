"""The pytest plugin: suites are collected like test files, and pytest-benchmark does its own work on pairbench's numbers.

Loaded in every pytest run of an environment with pairbench in it, so nothing heavy is imported before pytest comes across a suite, which
`plugin.session` then collects, runs and judges.
"""

import pytest

from pairbench.integrations.plugin.options import MARKERS, OPTIONS, Options, distributes, usage


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("pairbench", "operator pairs (pairbench)")
    for name, declared in OPTIONS.items():
        group.addoption(f"--pairbench-{name}", **declared)


def pytest_configure(config: pytest.Config) -> None:
    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning} (pairbench)")
    if config.option.help or config.option.version:
        return
    with usage():
        options = Options.of(config)
        files = options.files.in_reach()
        if not files:
            return
        from pairbench.integrations.plugin.session import PluginSession

        if distributes(config) and not hasattr(config, "workerinput"):
            # Other processes run all tests, and each would fail by itself because of a wrong option.
            PluginSession.open(config, options, ()).opened.close()
            return
        plugin_session = PluginSession.open(config, options, files)
    config.pluginmanager.register(plugin_session, "pairbench-session")
    config.add_cleanup(plugin_session.opened.close)
