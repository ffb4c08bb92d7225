"""What a fleet has done, host by host, and what it has not."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pairbench.model.plain import plain
from pairbench.model.unit import Host, Unit, UnitEnd, UnitResult
from pairbench.report.render import render_rows, to_json

_LISTED = 20


def host_rows(hosts: Iterable[Host], flying: Mapping[str, Unit], results: Iterable[UnitResult]) -> list[dict[str, Any]]:
    """Return a row for each host that is there or has done something."""
    done: dict[str, list[UnitResult]] = {}
    for result in results:
        if result.host:
            done.setdefault(result.host, []).append(result)
    here: dict[str, list[Host]] = {}
    for host in hosts:
        here.setdefault(host.name, []).append(host)
    rows = []
    for name in sorted({*here, *done}):
        ends = Counter(result.end for result in done.get(name, ()))
        now = [flying[host.address].name for host in here.get(name, ()) if host.address in flying]
        held_up = next((host.held_up for host in here.get(name, ()) if host.held_up), None)
        rows.append(
            {
                "host": name,
                "workers": len(here.get(name, ())),
                "devices": ", ".join(sorted({offer.model for host in here.get(name, ()) for offer in host.offers})),
                "done": ends[UnitEnd.DONE] + ends[UnitEnd.STORED],
                "other": sum(ends.values()) - ends[UnitEnd.DONE] - ends[UnitEnd.STORED],
                "now": held_up or "; ".join(now) or ("idle" if name in here else "gone"),
            }
        )
    return rows


def render_fleet(hosts: Sequence[Host], results: Sequence[UnitResult], output: str, store: str, seconds: float) -> str:
    """Return what became of all units, in one of the formats.

    Args:
        hosts: The fleet as it is at the end.
        results: What became of each unit.
        output: table, markdown or json.
        store: The store, as it may be shown.
        seconds: From the first unit to the last.
    """
    ends = Counter(result.end for result in results)
    if output == "json":
        units = [{**plain(result), "key": result.unit.key} for result in results]
        return to_json(
            {"store": store, "seconds": seconds, "summary": dict(ends), "hosts": plain(tuple(hosts)), "units": units}
        )
    parts = [
        render_rows(
            "hosts", [{k: v for k, v in row.items() if k != "now"} for row in host_rows(hosts, {}, results)], output
        )
    ]
    rest = [result for result in results if result.end not in (UnitEnd.DONE, UnitEnd.STORED)]
    if rest:
        rows = [
            {"unit": result.unit.name, "end": result.end.value, "host": result.host, "reason": result.reason}
            for result in rest
        ]
        parts.append(render_rows("not measured", rows[:_LISTED], output))
        if len(rest) > _LISTED:
            parts.append(f"and {len(rest) - _LISTED} more\n")
    bad = Counter[str]()
    for result in results:
        bad.update(
            {
                status: count
                for status, count in (result.statuses or {}).items()
                if status in ("mismatched", "failed", "timeout", "oom")
            }
        )
    words = ", ".join(f"{ends[end]} {_WORDS[end]}" for end in UnitEnd if ends[end]) or "nothing to do"
    parts.append(f"{len(results)} unit{'' if len(results) == 1 else 's'}: {words}; store {store}\n")
    if bad:
        parts.append(
            "Among what was measured: " + ", ".join(f"{count} {status}" for status, count in sorted(bad.items())) + "\n"
        )
    return "\n".join(parts)


_WORDS = {
    UnitEnd.DONE: "measured",
    UnitEnd.STORED: "in the store already",
    UnitEnd.SKIPPED: "skipped",
    UnitEnd.FAILED: "failed",
    UnitEnd.NOT_DONE: "not done; the same command goes on with them",
}
