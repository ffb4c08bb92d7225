"""The raw latencies of a run, by series, and nothing else of its samples."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pairbench.model.latency import CALL, DEVICE, STREAM
from pairbench.model.series import COLUMNS, Series
from pairbench.store.location import StoreLocation
from pairbench.store.reader import read_frame
from pairbench.store.reading import Reading

Floats = NDArray[np.float64]
LatencySamples = Mapping[str, Floats]
"""Samples in ns by the name of the latency, `device`, `stream` or `call`; without those that could not be taken."""


def latency_samples(store: str | Path | StoreLocation, run_id: str) -> Reading[dict[Series, LatencySamples]]:
    """Return the latencies of a run that its statistics rest on; none where its samples have been pruned.

    What was taken while the GPU throttled is left out of a round where it was measured again, as in the statistics.
    """
    place = StoreLocation.of(store)
    if not any(file.run_id == run_id for file in place.files("samples")):
        return Reading({}, ())
    wanted = [*COLUMNS, "throttled", "call_ns", "device_ns", "stream_ns"]
    frame, problems = read_frame(place, "samples", columns=wanted, run_ids=[run_id])
    found: dict[Series, dict[str, list[Floats]]] = {}
    for *key, throttled, call_ns, device_ns, stream_ns in frame.itertuples(index=False, name=None):
        good = ~np.asarray(throttled, dtype=bool)
        rounds = found.setdefault(Series(**dict(zip(COLUMNS, key, strict=True))), {})
        for name, taken in _taken(call_ns, device_ns, stream_ns):
            kept = taken[good] if 2 * good.sum() > len(good) else taken
            rounds.setdefault(name, []).append(kept[~np.isnan(kept)])
    joined: dict[Series, LatencySamples] = {
        series: {name: np.concatenate(several) for name, several in rounds.items()} for series, rounds in found.items()
    }
    return Reading(joined, problems)


def _taken(call_ns: object, device_ns: object, stream_ns: object) -> Iterator[tuple[str, Floats]]:
    yield CALL.name, np.asarray(call_ns, dtype=np.float64)
    # Null where the latency could not be taken in this round, and of a stream in most blocks.
    for latency, values in ((DEVICE, device_ns), (STREAM, stream_ns)):
        if isinstance(values, np.ndarray | list | tuple):
            yield latency.name, np.asarray(values, dtype=np.float64)
