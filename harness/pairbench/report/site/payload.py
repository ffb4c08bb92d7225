"""Data for the pages' scripts: each a script that calls one function, for a page opened from disk can load nothing else."""

import base64
import json
import math
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from pairbench.model.latency import DEVICE
from pairbench.model.site import SeriesFacts
from pairbench.report.comparison.words import shorten
from pairbench.report.site import paths
from pairbench.report.site.environment import fields
from pairbench.report.site.values import RunFacts

_DIGITS = 5
_LEVEL = 5
"""How hard zlib tries: more takes twice as long and saves a hundredth."""
_PACKED = 4_000
"""Number of letters from which a script's value is packed."""
_WHOLE = 2**53
"""The number from which on a float no longer holds every whole number."""
_REASON = 500
"""Number of letters of a reason that a table shows."""

NUMBERS = {
    "p50": "p50_ns",
    "low": "p50_ns_low",
    "high": "p50_ns_high",
    "p95": "p95_ns",
    "call": "call_p50_ns",
    "host": "host_p50_ns",
    "speedup": "speedup",
    "speedup_low": "speedup_low",
    "speedup_high": "speedup_high",
    "launches": "launches_per_call",
    "kernels": "kernels_per_call",
    "ops": "ops_per_call",
    "peak": "peak_bytes",
    "margin": "margin",
    "rounds": "n_rounds",
    "remeasured": "remeasured_blocks",
}
"""Names in `SeriesFacts.numbers` by their name in a run's data; the call and the host only of runs on a GPU. A column without any value is left out."""

_TEXTS = {
    "timer": "timer",
    "latency": "latency",
    "bound": "bound",
    "stop": "stop_reason",
    "throttle": "throttle_reasons",
    "definition": "definition_hash",
    "source": "implementation_hash",
}
"""Names in `SeriesFacts.texts` by their name in a run's data."""


def script(name: str, value: object) -> bytes:
    """Return a script that hands a value to the page under a name; NaN and infinities become null.

    It is plain ASCII and holds nothing that could end a script element or a line of one, wherever it is put. What is large is
    packed, for a page opened from disk has nobody to do that on the way.
    """
    try:
        text = _json(value)
    except ValueError:
        # Looked for only where there is one: most values are large and have none.
        text = _json(_finite(value))
    if len(text) > _PACKED:
        return b'pairbench.packed(%s, "%s");\n' % (_json(name).encode("ascii"), packed(text.encode("ascii")))
    return f"pairbench.data({_json(name)}, {text});\n".encode("ascii")


def packed(content: bytes) -> bytes:
    """Return content as a browser's `DecompressionStream('deflate')` takes it, in the letters of base64."""
    return base64.b64encode(zlib.compress(content, _LEVEL))


def figures(value: float | None, digits: int = _DIGITS) -> float | None:
    """Return a number with so many significant digits, whole ones as they are; None for what is no finite number."""
    if value is None or not math.isfinite(value):
        return None
    # A large store has millions of numbers, so this takes few calls; a number beyond 2**53 has lost its last digits already.
    whole = int(value)
    if value == whole and -_WHOLE < whole < _WHOLE:
        return whole
    rounded = float("%.*g" % (digits, value))  # noqa: UP031 (two thirds of the time of an f-string)
    if math.isinf(rounded):  # the largest numbers have nothing above them to be rounded to
        return float(value)
    whole = int(rounded)
    return whole if rounded == whole and -_WHOLE < whole < _WHOLE else rounded


def run_payload(run: RunFacts, there: Collection[tuple[str, str, str]] = ()) -> dict[str, object]:
    """Return the data that runs are compared by: an array for each column, with a value for each series.

    `pages` holds suite, operator and page of each operator that has one. `names` holds each text once, and the columns in `texts` hold indices into it (-1 for none); `reasons` is by the
    series' index.
    """
    head, series = run.head, run.series
    texts: dict[str, list[str | None]] = {
        "suite": [one.series.suite for one in series],
        "case": [one.series.case for one in series],
        "implementation": [one.series.implementation for one in series],
        "mode": [one.series.mode for one in series],
        "tier": [one.tier for one in series],
        "status": [one.status for one in series],
        **{name: [one.texts.get(key) for one in series] for name, key in _TEXTS.items()},
    }
    left_out = () if beside_result(series) else ("call", "host")
    columns = {
        name: [figures(one.numbers.get(key)) for one in series] for name, key in NUMBERS.items() if name not in left_out
    }
    names: dict[str, int] = {}
    indices = {name: [_index(text, names) for text in column] for name, column in texts.items()}
    return {
        "run": head.run_id,
        "device": head.device_name,
        "started": head.started_at,
        "commit": head.commit,
        "dirty": head.dirty,
        "branch": head.branch,
        "environment": {**head.versions, "machine": head.hostname, **dict(_lasting(run.environment))},
        "texts": indices,
        "names": list(names),
        "numbers": {name: column for name, column in columns.items() if any(value is not None for value in column)},
        "pages": [
            [suite, operator, paths.operator_page(head.device_name, suite, operator)]
            for suite, operator in sorted({(one.series.suite, one.series.operator) for one in series})
            if (head.device_name, suite, operator) in there
        ],
        "verdicts": _verdicts(run),
        "reasons": {str(index): shorten(one.reason, _REASON) for index, one in enumerate(series) if one.reason},
    }


def _verdicts(run: RunFacts) -> dict[str, object] | None:
    """Return the run that this one was judged beside, and the outcome of each series; empty where it has none."""
    if run.verdicts is None:
        return None
    outcomes = run.verdicts.outcomes
    return {"run": run.verdicts.reference, "outcomes": [outcomes.get(one.series, "") for one in run.series]}


def beside_result(series: Iterable[SeriesFacts]) -> bool:
    """Return whether the call's latency stands beside the results of any series: those of a GPU are the device's."""
    return any(one.texts.get("latency") == DEVICE.name for one in series)


def _index(text: str | None, names: dict[str, int]) -> int:
    return -1 if text is None else names.setdefault(text, len(names))


def _lasting(environment: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return the fields that do not describe one run alone."""
    return [(name, text) for name, text in fields(environment) if name.partition(".")[0] != "observed"]


def _json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("</", "<\\/").replace("<!--", "<\\u0021--")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
