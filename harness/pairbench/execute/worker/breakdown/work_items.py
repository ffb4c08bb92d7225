"""Adds up recorded calls by module, operator, kernel and line. Traces in, values out."""

import functools
from collections import Counter, defaultdict
from collections.abc import Iterator

import torch

from pairbench.execute.worker.breakdown.lines import COPIES, WAITS
from pairbench.execute.worker.breakdown.trace import Activity, Span, Window, module_of, operators_of
from pairbench.execute.worker.profile.launches import GRAPH_LAUNCHES
from pairbench.model.breakdown import DeviceWait, WorkTotal

_Key = tuple[str, tuple[str, ...], str | None, int | None, bool]
"""Module, operators, kernel, index of the line, and whether they are known."""

WorkItem = tuple[_Key, float, bool]
"""The key that a piece of work belongs to, how long it took in ns, and whether the host launched it by itself."""


def spots_by_span(window: Window, seen: list[str], indices: list[int]) -> dict[int, int]:
    """Return the line's index of each span (by `id`) that is the dispatch of an operator that was seen.

    The n-th dispatch of an operator in the trace is the n-th that was seen; where their numbers differ, none is known.
    """
    dispatched: dict[str, list[Span]] = defaultdict(list)
    for span in window.spans:
        if span.is_op and (span.name in COPIES or span.name in WAITS) and _is_dispatched(span):
            dispatched[span.name].append(span)
    spots: dict[str, list[int]] = defaultdict(list)
    for op, index in zip(seen, indices, strict=True):
        spots[op].append(index)
    return {
        id(span): index
        for op, spans in dispatched.items()
        if len(spans) == len(spots[op])
        for span, index in zip(spans, spots[op], strict=True)
    }


def _is_dispatched(span: Span) -> bool:
    """Return whether a dispatch mode sees this operator: all around it are mere compositions."""
    outer = [one.name for one in span.path()[:-1] if one.is_op]
    # An operator in one of the same name is what an overload that is a composition comes down to.
    return all(_is_composite(name) and name != above for name, above in zip(outer, ["", *outer], strict=False))


@functools.cache
def _is_composite(name: str) -> bool:
    if "::" not in name:  # a compiler's mark around its own work
        return True
    schemas = torch._C._jit_get_schemas_for_operator(name)
    return any(_has_composite_kernel(f"{name}.{schema.overload_name}".removesuffix(".")) for schema in schemas)


def _has_composite_kernel(overload: str) -> bool:
    try:
        return torch._C._dispatch_has_kernel_for_dispatch_key(overload, "CompositeImplicitAutograd")
    except RuntimeError:  # known to TorchScript alone
        return False


def host_work(window: Window, spot_of: dict[int, int]) -> Iterator[WorkItem]:
    """Yield the own time of everything that the host did in a call."""
    for span in window.spans:
        path = span.path()
        yield _key(path, None, spot_of), span.own_ns, False


def labelled(window: Window, marked: Window, spot_of: dict[int, int]) -> Iterator[WorkItem]:
    """Yield the device's activities of a call. The n-th of a name is the n-th of that name in the marked trace."""
    labels: dict[str, list[Activity]] = defaultdict(list)
    for activity in marked.activities:
        labels[activity.name].append(activity)
    turns: Counter[str] = Counter()
    graphs = _graphs(window)
    for activity in window.activities:
        same, turn = labels[activity.name], turns[activity.name]
        turns[activity.name] += 1
        same_activity = same[turn] if turn < len(same) else None
        launched = activity.category == "kernel" and id(activity.launch) not in graphs
        if same_activity is None or same_activity.launch is None:
            yield ("", (), activity.name, None, False), activity.ns, launched
        else:
            yield _key(same_activity.launch.path(), activity.name, spot_of), activity.ns, launched


def _graphs(window: Window) -> set[int]:
    """Return the launches (by `id`) of whole graphs."""
    launches = [activity.launch for activity in window.activities if activity.launch is not None]
    return {id(launch) for launch in launches if launch.name.startswith(GRAPH_LAUNCHES)}


def graph_launches(window: Window) -> int:
    """Return how many graphs a call launches."""
    return len(_graphs(window))


def _key(path: list[Span], kernel: str | None, spot_of: dict[int, int]) -> _Key:
    spot = next((spot_of[id(span)] for span in path if id(span) in spot_of), None)
    return module_of(path), operators_of(path), kernel, spot, True


def pieces(work_items: list[WorkItem]) -> tuple[WorkTotal, ...]:
    """Add up the work of a call."""
    sums: dict[_Key, list[float]] = {}
    for key, ns, launched in work_items:
        total = sums.setdefault(key, [0, 0, 0.0])
        total[0] += bool(key[1] or key[2])  # the time between operators is no operator
        total[1] += launched
        total[2] += ns
    return tuple(
        WorkTotal(
            module=module,
            ops=ops,
            kernel=kernel,
            spot=spot,
            known=known,
            count=int(count),
            launches=int(alone),
            ns=ns,
        )
        for (module, ops, kernel, spot, known), (count, alone, ns) in sums.items()
    )


def waits(window: Window, spot_of: dict[int, int]) -> tuple[DeviceWait, ...]:
    """Return the host's waits in a call, by what waited."""
    counts: Counter[tuple[str, _Key]] = Counter()
    for span in window.waits():
        counts[span.name, _key(span.path(), None, spot_of)] += 1
    return tuple(
        DeviceWait(name=name, module=key[0], ops=key[1], spot=key[3], count=count)
        for (name, key), count in counts.items()
    )
