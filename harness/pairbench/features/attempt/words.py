"""What `pairbench try` prints: a line or two for each implementation, what is wrong first."""

from collections.abc import Iterator, Sequence
from typing import Any

from pairbench.features.attempt.attempts import Attempt, Beside, Tried
from pairbench.model.environment import load_of, withheld
from pairbench.model.outcome import NOT_TRIED, Status
from pairbench.model.record import Record, p50_of, speedup_of
from pairbench.report import rows, units
from pairbench.report.render import clean, markdown_text
from pairbench.report.rows import autotuned, expanded, precision_remark
from pairbench.report.units import listed

LABEL = "A quick look: one round in one process, which judges itself, compared with the last one, and nothing stored. `pairbench run` measures."
_SHOWN = 3
_VERBS = {  # what happened to an implementation without a latency
    Status.MISMATCHED: "WRONG",
    Status.FAILED: "FAILED",
    Status.TIMEOUT: "FAILED, out of time",
    Status.OOM: "FAILED, out of memory",
    Status.SKIPPED: "skipped",
}


def case_lines(case: Sequence[Tried]) -> list[str]:
    first = case[0].record
    heading = clean(f"{first.case} ({first.suite}, {first.tier}, {first.device_name})")
    reason, *more = {one.record.reason for one in case}
    if len(case) > 1 and not more and reason is not None and all(Status(one.record.status).bad for one in case):
        return [heading, f"  {clean(f'{_VERBS[Status(first.status)]}: {reason}')}"]
    # Of a baseline that only served to tell right from wrong there is nothing to say.
    tried = [one for one in case if one.record.reason != NOT_TRIED]
    shown = [one for one in tried if (one.record.role, one.record.status) != ("baseline", Status.VERIFIED)]
    width = max((len(_name(one.record)) for one in shown), default=0)
    lines = [heading]
    for one in shown:
        name = _name(one.record)
        for line in _words(one):
            lines.append(f"  {name.ljust(width)}  {clean(line)}")
            name = ""
    if names := [_name(one.record) for one in case if one.record.reason == NOT_TRIED]:
        lines.append(f"  not tried: {', '.join(names)}")
    load = load_of(first.environment) if any(p50_of(one.record) for one in case) else None
    why = load and load.disturbs(first.device_kind)
    return [*lines, f"  {why}"] if why else lines


def closing_lines(attempt: Attempt, *, with_left_out: bool = True) -> list[str]:
    lines = []
    if attempt.untried:
        lines.append(f"Not tried, for something before is wrong: {listed(attempt.untried, _SHOWN)}")
    if attempt.left_out and with_left_out:
        lines += [f"One case of each operator; --all-cases takes the others, too: {listed(attempt.left_out, _SHOWN)}"]
    return lines + (precision_remark(one.record for one in attempt.tried) if with_left_out else [])


def as_markdown(attempt: Attempt) -> str:
    parts = []
    for case in attempt.cases:
        heading, *lines = case_lines(case)
        parts.append(f"### {markdown_text(heading)}\n\n" + "".join(f"- {markdown_text(line)}\n" for line in lines))
    return "\n".join([*parts, *(f"{markdown_text(line)}\n" for line in (*closing_lines(attempt), LABEL))])


def as_plain(attempt: Attempt) -> dict[str, Any]:
    """Return an attempt as JSON values: records as `pairbench run` gives them, with their comparisons."""
    tries = [
        {**expanded(one.record), "last_try": _plain_beside(one.last), "stored_run": _plain_beside(one.stored)}
        for one in attempt.tried
    ]
    return {
        "tries": tries,
        "left_out": list(attempt.left_out),
        "untried": list(attempt.untried),
        "broken_suites": [{"suite": one.suite, "reason": one.reason} for one in attempt.broken],
        "notes": precision_remark(one.record for one in attempt.tried),
    }


def _plain_beside(one: Beside | None) -> dict[str, Any] | None:
    if one is None:
        return None
    known = p50_of(one.record)
    return {
        "run_id": one.record.run_id or None,
        "started_at": one.record.started_at,
        "p50_ns": known.estimate if known else None,
        "change": None if one.change is None else one.change - 1,
        "clear": one.clear,
        "shared_by_baseline": one.shared,
        "other_environment": one.elsewhere,
        "not_comparable": one.why_not or None,
    }


def _name(record: Record) -> str:
    return f"{record.implementation}{'' if record.mode == 'eager' else f' ({record.mode})'}"


def _words(one: Tried) -> list[str]:
    record = one.record
    if p50_of(record) is None:
        status = Status(record.status)
        if status is Status.VERIFIED:
            return ["right, not timed"]
        # What was verified and is not to be timed here.
        right = "right, not timed" if status is Status.SKIPPED and record.margin is not None else _VERBS[status]
        return [f"{right}: {record.reason}"]
    right = "right" if record.role == "variant" else ""
    counts = ((record.launches_per_call, "launch", "launches"), (record.ops_per_call, "operator", "operators"))
    works = (f"{number} {name if number == 1 else names}" for number, name, names in counts if number is not None)
    parts = [_latency(record, one.last), right, next(works, ""), _speedup(record)]
    rate, part = rows.rate(record), rows.part_of_roof(record)
    further = [
        *(f"{rate}, {part} of the roof" if part else rate, units.remark(record)),
        *(units.SAME_MEMORY if record.reuses_output else "", record.reason or "", autotuned(record), *_remarks(one)),
    ]
    return list(filter(None, [", ".join(filter(None, parts)), "; ".join(filter(None, further))]))


def _latency(record: Record, last: Beside | None) -> str:
    known, before = p50_of(record), p50_of(last.record) if last and not last.why_not else None
    assert known is not None
    now = units.duration(known.estimate) + ("?" if withheld(record.device_kind, record.environment) else "")
    if before is None:
        return now
    then = units.duration(before.estimate)
    number, _, unit = then.partition(" ")
    then = number if now.removesuffix("?").endswith(f" {unit}") else then
    return f"{then} -> {now}{_change(last)}"


def _change(one: Beside | None) -> str:
    if one is None or one.change is None:
        return ""
    remark = ", as the baseline" if one.shared else "" if one.clear else ", within noise"
    return f" ({units.change(one.change)}{remark})"


def _speedup(record: Record) -> str:
    if record.role == "baseline":
        return ""
    if withheld(record.device_kind, record.environment):
        return "speedup withheld"
    ends = units.speedup_range(record)
    return f"speedup {units.speedup(record)}{f' ({ends})' if ends else ''}" if speedup_of(record) else ""


def _remarks(one: Tried) -> Iterator[str]:
    """Yield remarks on the comparisons with the last try and the newest stored run."""
    if one.last and one.last.why_not:
        yield f"not compared with the last try: {one.last.why_not}"
    elif one.last and one.last.elsewhere:
        yield "the last try was in another environment"
    if one.stored is None:
        return
    known = p50_of(one.stored.record)
    if one.stored.why_not or known is None:
        yield f"not compared with run {one.stored.record.run_id}: {one.stored.why_not}"
        return
    elsewhere = " in another environment" if one.stored.elsewhere else ""
    yield f"run {one.stored.record.run_id}{elsewhere}: {units.duration(known.estimate)}{_change(one.stored)}"
