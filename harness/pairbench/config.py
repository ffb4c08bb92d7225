"""Settings: the options of the command line over `[tool.pairbench]` of the nearest pyproject.toml, resolved to one value."""

import difflib
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Any

from pairbench.errors import ConfigError
from pairbench.model.case import TIERS
from pairbench.model.environment import MODES, TIMERS, Settings
from pairbench.model.plain import Value, redacted

_RENAMED = {"tier": "tiers", "mode": "modes", "timeout": "timeout_s"}  # as users write them, and as `Settings` has them


class Config(Value):
    """The resolved configuration: where suites and results are, and how to measure."""

    root: Path
    suites: tuple[str, ...] | None = None
    """Suite files and folders relative to `root`, the folder of the pyproject.toml or the current one; None for those in the current folder."""
    catalogue: bool = False
    """Whether to take the suites that come with pairbench instead of those in `suites`."""
    store: str = "results"
    written: Path | None = None
    """Folder of suites that the Python interface has written for operators of a notebook or script."""
    self_tests: tuple[str, ...] = ()
    """Patterns of suites that only test the harness: the site's sums over operators leave them out."""
    budget_s: float | None = None
    """Seconds that `pairbench run` has; None for as long as it takes."""
    build: str | None = None
    """Command that builds a commit in its folder before a fleet measures it; None where nothing is to be built."""
    given: frozenset[str] = frozenset()
    """Names of the settings that the file or the command line sets; the others have their defaults."""
    settings: Settings = field(default_factory=Settings)

    @property
    def shown_store(self) -> str:
        return redacted(self.store)


def load_config(start: Path, *, catalogue: bool = False, **options: Any) -> Config:
    # `options` are those of the command line, named as in the file; None for options that are not given. They win over the file.
    root, table = _find_table(start)
    chosen = {**table, **{name: value for name, value in options.items() if value is not None}}
    suites, store = _texts(chosen, "suites", "files and folders"), chosen.pop("store", "results")
    self_tests = _texts(chosen, "self_tests", "patterns of suites")
    if not isinstance(store, str) or not store.strip():
        named = "setting 'store'" if options.get("store") is None else "--store"
        what = "is empty" if isinstance(store, str) else f"is {store!r}"
        raise ConfigError(f"{named} {what}, expected a folder or URL")
    budget, build = chosen.pop("budget", None), chosen.pop("build", None)
    if build is not None and (not isinstance(build, str) or not build.strip()):
        raise ConfigError(f"setting 'build' is {build!r}, expected a command of a shell")
    if (against := chosen.pop("against", "")) != "":
        against = _existing(root if options.get("against") is None else start, against)
    values = {_RENAMED.get(name, name): value for name, value in chosen.items()}
    return Config(
        root=root,
        suites=suites,
        catalogue=catalogue,
        store=store if "://" in store or options.get("store") else str(root / store),
        self_tests=self_tests or (),
        budget_s=None if budget is None else _seconds(budget),
        build=build,
        given=frozenset(values),
        settings=Settings(against=against, **{name: _checked(name, value) for name, value in values.items()}),
    )


def _texts(chosen: dict[str, Any], name: str, what: str) -> tuple[str, ...] | None:
    value = chosen.pop(name, None)
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise ConfigError(f"setting {name!r} is {value!r}, expected a list of {what}: [{value!r}]")
    return tuple(value)


def _existing(folder: Path, against: object) -> str:
    path = folder / against if isinstance(against, str | Path) and str(against).strip() else None
    if path is None or not path.exists():
        there = ", which does not exist" if path else ""
        raise ConfigError(f"setting 'against' is {str(against)!r}{there}; expected a file or a folder of candidates")
    return str(path.resolve())


def _find_table(start: Path) -> tuple[Path, dict[str, Any]]:
    for folder in (start, *start.parents):
        file = folder / "pyproject.toml"
        if not file.is_file():
            continue
        try:
            content = tomllib.loads(file.read_text(encoding="utf-8"))
        # Text that is not UTF-8 or no TOML, and numbers that are too long, raise a ValueError.
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(f"{file}: cannot be read: {error}; expected TOML") from error
        tool = content.get("tool", {})
        table = tool.get("pairbench") if isinstance(tool, dict) else tool
        if table is not None and not isinstance(table, dict):
            raise ConfigError(f"{file}: [tool.pairbench] is {table!r:.60}, expected a table of settings")
        if table is not None:
            return folder, table
    return start, {}


def _seconds(budget: object) -> float | None:
    """Return a length of time such as 10m in seconds; None for `none`, which overrides the file's budget."""
    if budget == "none":
        return None
    parts = re.fullmatch(r"(\d{1,6}(?:\.\d+)?)([smh])", budget) if isinstance(budget, str) else None
    seconds = float(parts[1]) * {"s": 1, "m": 60, "h": 3600}[parts[2]] if parts else 0.0
    if not seconds:
        expected = "a length of time such as '90s', '10m' or '1h', or 'none'"
        raise ConfigError(f"setting 'budget' is {budget!r}, expected {expected}")
    return seconds


def _checked(name: str, value: Any) -> Any:
    known = {item.name: item.default for item in fields(Settings)}
    if name not in known:
        names = sorted({*known, *_RENAMED, "budget", "build", "self_tests", "suites", "store"} - set(_RENAMED.values()))
        close = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"expected one of {', '.join(names)}"
        raise ConfigError(f"setting {name!r} is unknown; {hint}")
    if name in ("tiers", "modes"):
        return _checked_choices(name.removesuffix("s"), value, TIERS if name == "tiers" else MODES)
    if name == "timer":
        return _checked_choices(name, value, TIMERS)[0]
    kind: type = type(known[name])
    name = next((short for short, field in _RENAMED.items() if field == name), name)
    if isinstance(value, bool) != (kind is bool) or not isinstance(value, int if kind is int else int | float):
        expected = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
        raise ConfigError(f"setting {name!r} is {value!r}, expected {expected}")
    if not math.isfinite(value):
        raise ConfigError(f"setting {name!r} is {value!r}, expected a finite number")
    if value < (kind is int and name != "seed") or (kind is float and value == 0):
        raise ConfigError(f"setting {name!r} is {value!r}, expected more than 0")
    return kind(value)


def _checked_choices(name: str, value: Any, choices: tuple[str, ...]) -> tuple[str, ...]:
    values = value if isinstance(value, Iterable) and not isinstance(value, str | Mapping) else [value]
    chosen = [word for item in values for word in (item.split(",") if isinstance(item, str) else [item])]
    if not chosen:
        raise ConfigError(f"setting {name!r} is empty, expected some of {', '.join(choices)}, or all")
    if "all" in chosen:
        return choices
    for word in chosen:
        if word not in choices:
            raise ConfigError(f"{name} {word!r} is unknown, expected one of {', '.join(choices)}, or all")
    return tuple(dict.fromkeys(chosen))
