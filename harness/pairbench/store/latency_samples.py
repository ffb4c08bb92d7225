"""The raw latencies of a run, by series, and nothing else of its samples."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pairbench.model.latency import CALL, DEVICE
from pairbench.model.series import COLUMNS, Series
from pairbench.store.location import StoreLocation
from pairbench.store.reader import read_frame
from pairbench.store.reading import Reading

Floats = NDArray[np.float64]
LatencySamples = Mapping[str, Floats]
"""Samples in ns by the name of the latency, `device` or `call`; without the device's where it could not be taken."""


def latency_samples(store: str | Path | StoreLocation, run_id: str) -> Reading[dict[Series, LatencySamples]]:
    """Return the latencies of a run that its statistics rest on; none where its samples have been pruned.

    What was taken while the GPU throttled is left out of a round where it was measured again, as in the statistics.
    """
    place = StoreLocation.of(store)
    if not any(file.run_id == run_id for file in place.files("samples")):
        return Reading({}, ())
    wanted = [*COLUMNS, "throttled", "call_ns", "device_ns"]
    frame, problems = read_frame(place, "samples", columns=wanted, run_ids=[run_id])
    found: dict[Series, dict[str, list[Floats]]] = {}
    for *key, throttled, call_ns, device_ns in frame.itertuples(index=False, name=None):
        good = ~np.asarray(throttled, dtype=bool)
        rounds = found.setdefault(Series(**dict(zip(COLUMNS, key, strict=True))), {})
        for name, taken in _taken(call_ns, device_ns):
            rounds.setdefault(name, []).append(taken[good] if 2 * good.sum() > len(good) else taken)
    joined: dict[Series, LatencySamples] = {
        series: {name: np.concatenate(several) for name, several in rounds.items()} for series, rounds in found.items()
    }
    return Reading(joined, problems)


def _taken(call_ns: object, device_ns: object) -> Iterator[tuple[str, Floats]]:
    yield CALL.name, np.asarray(call_ns, dtype=np.float64)
    # Null where the latency on the device could not be taken in this round.
    if isinstance(device_ns, np.ndarray | list | tuple):
        yield DEVICE.name, np.asarray(device_ns, dtype=np.float64)
