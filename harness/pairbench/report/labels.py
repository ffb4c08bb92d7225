"""Short labels for the cases of one operator, in an order in which they read well, and short lists of qualified module names.

A case's key repeats what all cases share; a chart has room for what differs.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeGuard

from pairbench.model.site import SeriesFacts
from pairbench.report.render import shorten


def outermost(names: Iterable[str]) -> list[str]:
    known = dict.fromkeys(names)
    return [one for one in known if known.keys().isdisjoint(itertools.accumulate(one.split(".")[:-1], "{}.{}".format))]


def merge_numbered(names: Iterable[str]) -> list[str]:
    """Return names, those that differ in numbers alone merged into one such as `blocks.*.ffn`."""
    groups: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        shape = ".".join("*" if part.isdecimal() else part for part in name.split("."))
        groups.setdefault(shape, []).append(name)
    return [shape if len(group) > 1 else group[0] for shape, group in groups.items()]


def listed(names: Sequence[str], shown: int = 8, between: str = ", ") -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return between.join(names[:shown]) + more


def shared_names(rows: Iterable[tuple[str | None, ...]]) -> list[str]:
    """Return of each column the name that all rows share, where they do."""
    return [next(iter(names)) or "" for names in map(set, zip(*rows, strict=True)) if len(names) == 1 and any(names)]


WIDTH = 60  # number of letters that a label may have
_FITS = 44  # up to so many letters a label has all axes that differ; longer ones leave out what other axes imply
_ABSENT = object()


def case_labels(series: Sequence[SeriesFacts]) -> dict[str, str]:
    """Return the label of each case of some series: by dtype, other words, then by numbers, the smallest first."""
    return labels_of({one.series.case: one.axes for one in series})


def labels_of(cases: Mapping[str, Mapping[str, object]], *, fits: int = _FITS) -> dict[str, str]:
    """Return the labels of cases, given as axes by the key, in the order of `case_labels`; `fits` is their number of letters."""
    width = WIDTH + fits - _FITS
    axes = _differing(list(cases.values()))
    shown = _fitting(list(cases.values()), axes, fits)
    # In the order of what is read, and only then of what is left out.
    ranked = [*shown, *(axis for axis in axes if axis not in shown)]
    ordered = sorted(cases, key=lambda case: (*(_rank(cases[case].get(axis, _ABSENT)) for axis in ranked), case))
    # One case alone differs from no other.
    texts = {case: _axes_text(cases[case], shown or sorted(cases[case])) for case in ordered}
    labels = {case: shorten(text, width) or shorten(case, width) for case, text in texts.items()}
    # Two labels may be the same after shortening; then the whole key is used.
    doubled = {label for label in labels.values() if list(labels.values()).count(label) > 1}
    return {case: shorten(case, width) if label in doubled else label for case, label in labels.items()}


def _differing(cases: Sequence[Mapping[str, object]]) -> list[str]:
    """Return the axes with several values: the dtype, then words, for they make groups, then numbers."""
    names = dict.fromkeys(axis for case in cases for axis in case)
    varying = [axis for axis in names if len({axis_text(case.get(axis, _ABSENT)) for case in cases}) > 1]
    numbers = {axis for axis in varying if all(is_number(case[axis]) for case in cases if axis in case)}
    return sorted(varying, key=lambda axis: (axis != "dtype", axis in numbers, axis))


def _fitting(cases: Sequence[Mapping[str, object]], differing: Sequence[str], fits: int) -> list[str]:
    """Return the axes that labels have room for: sizes that only follow others go first, the dtype stays."""
    kept = list(differing)

    def distinct(axes: Sequence[str]) -> int:
        return len({tuple(axis_text(case.get(axis, _ABSENT)) for axis in axes) for case in cases})

    whole = distinct(kept)
    for axis in sorted(kept, key=lambda axis: (axis == "dtype", distinct([axis]), axis)):
        if max((len(_axes_text(case, kept)) for case in cases), default=0) <= fits:
            break
        less = [other for other in kept if other != axis]
        kept = less if distinct(less) == whole else kept
    return kept


def _axes_text(axes: Mapping[str, object], shown: Sequence[str]) -> str:
    here = [axis for axis in shown if axis in axes]
    return ", ".join(axis_text(axes[axis]) if axis == "dtype" else f"{axis}={axis_text(axes[axis])}" for axis in here)


def _rank(value: object) -> tuple[int, float, str]:
    """Return a sort key: absent values first, then numbers by size, then words."""
    if value is _ABSENT:
        return (0, 0.0, "")
    if is_number(value):
        return (1, float(value), "")
    if isinstance(value, list | tuple) and all(is_number(item) for item in value):
        return (1, float(math.prod(value)), axis_text(value))
    return (2, 0.0, axis_text(value))


def is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def axis_text(value: object) -> str:
    if value is _ABSENT:
        return ""
    return "x".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
