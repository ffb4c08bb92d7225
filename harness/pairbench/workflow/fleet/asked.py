"""The units that a command asks for: those of a plan's file, or one for each operator, commit and device model."""

import json
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from pairbench.config import Config
from pairbench.errors import UsageError
from pairbench.model.unit import Host, Unit
from pairbench.workflow.git.repository import git
from pairbench.workflow.git.worktrees import repository_of, resolve
from pairbench.workflow.setup import choose, open_context

_ENDINGS = (".json", ".toml")
ANY = "any"
"""Stands for each device model of the fleet, GPUs before CPUs."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which units a command asks for, apart from what they measure."""

    commits: tuple[str, ...]
    """Commits, branches or tags; none for the one that is checked out."""
    devices: tuple[str, ...]
    tier: tuple[str, ...]
    mode: tuple[str, ...]
    rounds: int | None


def units_of(config: Config, arguments: list[str], wanted: Wanted) -> tuple[Unit, ...]:
    """Return the units of a plan's file, or of SELECT arguments. Those for `any` device are for the fleet to say.

    Raises:
        UsageError: the file is no plan, or a commit, a file or an operator is not there.
    """
    if len(arguments) == 1 and arguments[0].endswith(_ENDINGS):
        if wanted != Wanted(commits=(), devices=(), tier=(), mode=(), rounds=None):
            raise UsageError(
                f"plan {arguments[0]!r} says all of its units: it goes with none of --commit, --device, --tier, --mode, --rounds"
            )
        return tuple(_resolved(config, unit) for unit in read_plan(Path(arguments[0])))
    plain = _of_operators(_operators(config, arguments), wanted)
    commits: list[str | None] = [*(resolve(_repository(config), name) for name in wanted.commits)]
    commits = commits or [git(config.root, "rev-parse", "HEAD")]
    return tuple(
        replace(unit, commit=commit, device=device)
        for commit in commits
        for unit in plain
        for device in wanted.devices or (ANY,)
    )


def _of_operators(operators: Iterable[tuple[str, ...]], wanted: Wanted) -> tuple[Unit, ...]:
    """Return a unit for each operator, on no device yet."""
    return tuple(
        Unit(operators=names, device=ANY, tier=wanted.tier, mode=wanted.mode, rounds=wanted.rounds)
        for names in operators
    )


def on_models(units: Iterable[Unit], hosts: Iterable[Host]) -> tuple[Unit, ...]:
    """Return units with those for `any` device made into one for each GPU model of the fleet, or each CPU model where it has no GPU.

    Raises:
        UsageError: there is no host to ask.
    """
    offers = [offer for host in hosts for offer in host.offers]
    models = sorted({offer.model for offer in offers if offer.kind == "cuda"} or {offer.model for offer in offers})
    units = tuple(units)
    if not models and any(unit.device == ANY for unit in units):
        raise UsageError(
            "no worker has joined yet, so say for which device by --device; `pairbench fleet worker` starts one"
        )
    return tuple(
        one
        for unit in units
        for one in ([replace(unit, device=model) for model in models] if unit.device == ANY else [unit])
    )


def read_plan(file: Path) -> tuple[Unit, ...]:
    """Return the units in a file of JSON or TOML: a list of tables under `units`.

    Raises:
        UsageError: it cannot be read, or is none.
    """
    try:
        text = file.read_text(encoding="utf-8")
        content = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(
            f"plan {str(file)!r} cannot be read: {error}; expected JSON or TOML with a list `units`"
        ) from error
    units = content.get("units") if isinstance(content, dict) else None
    if not isinstance(units, list) or not units:
        raise UsageError(
            f"plan {str(file)!r} has no units, expected a list `units` of tables with `operators` and `device`"
        )
    return tuple(Unit.of(values, f"plan {str(file)!r}, unit {number}") for number, values in enumerate(units, 1))


def _resolved(config: Config, unit: Unit) -> Unit:
    return unit if unit.commit is None else replace(unit, commit=resolve(_repository(config), unit.commit))


def _repository(config: Config) -> Path:
    return repository_of(config.root, "a unit names a commit of it")


def _operators(config: Config, select: list[str]) -> list[tuple[str, ...]]:
    """Return the SELECT arguments of each operator that is asked for: itself, or those of its cases that are.

    Raises:
        UsageError: a suite cannot be loaded.
    """
    with open_context(config, describes=True) as context:
        chosen = choose(config, context, select)
    if chosen.survey.broken:
        raise UsageError("; ".join(suite.reason for suite in chosen.survey.broken))
    whole = {(operator.suite, operator.name): len(operator.cases) for operator in chosen.survey.operators}
    found: list[tuple[str, ...]] = []
    for operator in chosen.operators():
        name = f"{operator.suite}::{operator.name}"
        if len(operator.cases) == whole[operator.suite, operator.name]:
            found.append((name,))
        else:
            found.append(tuple(f"{operator.suite}::{case.key}" for case in operator.cases))
    if not found:
        raise UsageError(f"nothing is called {' or '.join(select)}; `pairbench list` shows what there is")
    return found
