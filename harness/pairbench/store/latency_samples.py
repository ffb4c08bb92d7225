"""The raw call latencies of a run, by series, and nothing else of its samples."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pairbench.model.series import COLUMNS, Series
from pairbench.store.location import StoreLocation
from pairbench.store.reader import Reading, read_frame


def call_samples(store: str | Path | StoreLocation, run_id: str) -> Reading[dict[Series, NDArray[np.float64]]]:
    """Return the call latencies of a run in ns that its statistics rest on; none where its samples have been pruned.

    What was taken while the GPU throttled is left out of a round where it was measured again, as in the statistics.
    """
    place = StoreLocation.of(store)
    if not any(file.run_id == run_id for file in place.files("samples")):
        return Reading({}, ())
    frame, problems = read_frame(place, "samples", columns=[*COLUMNS, "call_ns", "throttled"], run_ids=[run_id])
    found: dict[Series, list[NDArray[np.float64]]] = {}
    for *key, call_ns, throttled in frame.itertuples(index=False, name=None):
        good = ~np.asarray(throttled, dtype=bool)
        taken = np.asarray(call_ns, dtype=np.float64)
        found.setdefault(Series(**dict(zip(COLUMNS, key, strict=True))), []).append(
            taken[good] if 2 * good.sum() > len(good) else taken
        )
    return Reading({series: np.concatenate(rounds) for series, rounds in found.items()}, problems)
