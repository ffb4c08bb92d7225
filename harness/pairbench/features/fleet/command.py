"""`pairbench fleet run`: units are selected, taken through the fleet, shown as they come back, and added up."""

import contextlib
import itertools
import json
import sys
import threading
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pairbench.config import Config
from pairbench.errors import UsageError
from pairbench.features.fleet.dask import is_loopback
from pairbench.features.fleet.drive import Drive, Progress
from pairbench.model.outcome import Status
from pairbench.model.plain import grouped, plain, safe
from pairbench.model.unit import Host, Unit, UnitEnd, UnitResult
from pairbench.report.render import render_rows, to_json
from pairbench.workflow.git import git, repository_of, resolve
from pairbench.workflow.progress import PlainProgress
from pairbench.workflow.setup import choose, on_signals, open_context, store_of

ANY = "any"  # the device of units that are measured on each device model of the fleet, GPUs before CPUs
_LINE_EVERY_S = 10.0
_LISTED = 20  # the most units that are named as not measured
_WORDS = {
    UnitEnd.DONE: "measured",
    UnitEnd.STORED: "in the store already",
    UnitEnd.SKIPPED: "skipped",
    UnitEnd.FAILED: "failed",
    UnitEnd.NOT_DONE: "not done; the same command goes on with them",
}


def units_of(
    config: Config, arguments: list[str], commits: Sequence[str], devices: Sequence[str], like: Unit
) -> tuple[Unit, ...]:
    """Return the units of a plan's file, or of SELECT arguments at some commits, by default the one that is checked out, with the tiers, modes and rounds of `like`."""
    if len(arguments) == 1 and arguments[0].endswith((".json", ".toml")):
        if any((commits, devices, like.tier, like.mode, like.rounds)):
            alone = "it goes with none of --commit, --device, --tier, --mode, --rounds"
            raise UsageError(f"plan {arguments[0]!r} says all of its units: {alone}")
        units = read_plan(Path(arguments[0]))
        return tuple(replace(unit, commit=unit.commit and resolve(_repository(config), unit.commit)) for unit in units)
    selected = _operators(config, arguments)
    named: list[str | None] = [*(resolve(_repository(config), name) for name in commits)]
    places = itertools.product(named or [git(config.root, "rev-parse", "HEAD")], selected, devices or (ANY,))
    return tuple(replace(like, operators=names, commit=commit, device=device) for commit, names, device in places)


def on_models(units: Iterable[Unit], hosts: Iterable[Host]) -> tuple[Unit, ...]:
    """Return units with `any` replaced by each GPU model of the fleet, or by each CPU model where it has no GPU."""
    offers = [offer for host in hosts for offer in host.offers]
    models = sorted({offer.model for offer in offers if offer.kind == "cuda"} or {offer.model for offer in offers})
    units = tuple(units)
    if not models and any(unit.device == ANY for unit in units):
        why = "no worker has joined yet, so say for which device by --device"
        raise UsageError(f"{why}; `pairbench fleet worker` starts one")
    devices = {unit: models if unit.device == ANY else [unit.device] for unit in units}
    return tuple(replace(unit, device=device) for unit in units for device in devices[unit])


def read_plan(file: Path) -> tuple[Unit, ...]:
    plan = f"plan {str(file)!r}"
    try:
        text = file.read_text(encoding="utf-8")
        content = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{plan} cannot be read: {error}; expected JSON or TOML with a list `units`") from error
    units = content.get("units") if isinstance(content, dict) else None
    if not isinstance(units, list) or not units:
        raise UsageError(f"{plan} has no units, expected a list `units` of tables with `operators` and `device`")
    return tuple(Unit.of(values, f"{plan}, unit {number}") for number, values in enumerate(units, 1))


def _repository(config: Config) -> Path:
    return repository_of(config.root, "a unit names a commit of it")


def _operators(config: Config, select: list[str]) -> list[tuple[str, ...]]:
    with open_context(config, describes=True) as context:
        chosen = choose(config, context, select)
    if chosen.survey.broken:
        raise UsageError("; ".join(suite.reason for suite in chosen.survey.broken))
    whole = {(operator.suite, operator.name): len(operator.cases) for operator in chosen.survey.operators}
    selected = [
        (f"{operator.suite}::{operator.name}",)
        if len(operator.cases) == whole[operator.suite, operator.name]
        else tuple(f"{operator.suite}::{case.key}" for case in operator.cases)
        for operator in chosen.operators()
    ]
    if not selected:
        raise UsageError(f"nothing is called {' or '.join(select)}; `pairbench list` shows what there is")
    return selected


def run_fleet(
    config: Config, units: Collection[Unit], address: str, certificates: Path | None, patience_s: float
) -> Progress:
    """Have units measured; `address` is a scheduler's that was checked, and `patience_s` how long to wait for it, and for a device."""
    store, interrupted = store_of(config), threading.Event()
    with on_signals(lambda *_: interrupted.set()), open_table() as (show, notify):
        if store.is_local and not is_loopback(address):
            seen = "which every host has to see under this name; s3:// and gs:// need none"
            notify(f"pairbench: store {store.address} is a folder, {seen}")
        drive = Drive(address, certificates, store, patience_s, notify, show, interrupted)
        head = git(config.root, "rev-parse", "HEAD")
        if any(unit.commit == head for unit in units if head) and git(config.root, "status", "--porcelain"):
            notify("pairbench: uncommitted changes are not measured: a unit is of its commit")
        return drive.run(lambda hosts: on_models(units, hosts))


@contextlib.contextmanager
def open_table() -> Iterator[tuple[Callable[[Progress], None], Callable[[str], None]]]:
    if not sys.stderr.isatty():
        shown_at, plain_progress = 0.0, PlainProgress()

        def show_line(progress: Progress) -> None:
            nonlocal shown_at
            if time.monotonic() - shown_at >= _LINE_EVERY_S:
                shown_at = time.monotonic()
                plain_progress.notify(f"pairbench: {_head(progress)}")

        yield show_line, plain_progress.notify
        return
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    console = Console(stderr=True)
    with Live(console=console, refresh_per_second=2, transient=True) as live:

        def show(progress: Progress) -> None:
            table = Table(title=_head(progress), title_justify="left", box=None, pad_edge=False)
            for name in ("host", "workers", "devices", "done", "other", "now"):
                table.add_column(name, overflow="ellipsis", no_wrap=True)
            for row in host_rows(progress.hosts, progress.flying, progress.results)[:40]:
                table.add_row(*(safe(str(value)).replace("[", "\\[") for value in row.values()))
            live.update(table)

        yield show, lambda text: console.print(safe(text), markup=False, highlight=False)


def _head(progress: Progress) -> str:
    return f"{len(progress.results)} units over, {len(progress.flying)} under way, {progress.waiting} waiting, {len(progress.hosts)} workers"


def host_rows(hosts: Iterable[Host], flying: Mapping[str, Unit], results: Iterable[UnitResult]) -> list[dict[str, Any]]:
    ends: defaultdict[str, Counter[UnitEnd]] = defaultdict(Counter)
    for result in results:
        if result.host:
            ends[result.host][result.end] += 1
    workers = grouped((host.name, host) for host in hosts)
    rows = []
    for name in sorted({*workers, *ends}):
        here = workers.get(name, [])
        done = ends[name][UnitEnd.DONE] + ends[name][UnitEnd.STORED]
        now = [flying[host.address].name for host in here if host.address in flying]
        held_up = next((host.held_up for host in here if host.held_up), None)
        devices = ", ".join(sorted({offer.model for host in here for offer in host.offers}))
        row = {"host": name, "workers": len(here), "devices": devices, "done": done, "other": ends[name].total() - done}
        rows.append({**row, "now": held_up or "; ".join(now) or ("idle" if here else "gone")})
    return rows


def render_fleet(hosts: Sequence[Host], results: Sequence[UnitResult], output: str, store: str, seconds: float) -> str:
    ends = Counter(result.end for result in results)
    if output == "json":
        document = {"store": store, "seconds": seconds, "summary": dict(ends), "hosts": plain(tuple(hosts))}
        return to_json({**document, "units": [{**plain(result), "key": result.unit.key} for result in results]})
    host_totals = [{name: row[name] for name in row if name != "now"} for row in host_rows(hosts, {}, results)]
    parts = [render_rows("hosts", host_totals, output)]
    if rest := [result for result in results if result.end not in (UnitEnd.DONE, UnitEnd.STORED)]:
        rows = [{"unit": one.unit.name, "end": one.end.value, "host": one.host, "reason": one.reason} for one in rest]
        parts.append(render_rows("not measured", rows[:_LISTED], output))
        if len(rest) > _LISTED:
            parts.append(f"and {len(rest) - _LISTED} more\n")
    bad = Counter[str]()
    for result in results:
        bad.update({name: count for name, count in (result.statuses or {}).items() if Status(name).bad})
    words = ", ".join(f"{ends[end]} {_WORDS[end]}" for end in UnitEnd if ends[end]) or "nothing to do"
    parts.append(f"{len(results)} unit{'' if len(results) == 1 else 's'}: {words}; store {store}\n")
    if bad:
        counts = ", ".join(f"{count} {status}" for status, count in sorted(bad.items()))
        parts.append(f"Among what was measured: {counts}\n")
    return "\n".join(parts)
