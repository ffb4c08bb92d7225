"""What comparing a device with itself has shown: `<store>/calibrations/device=<slug>/<calibration_id>.json`."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from pairbench.model.comparison import Calibration
from pairbench.model.environment import device_slug
from pairbench.store.documents import read_documents, write_document
from pairbench.store.location import StoreLocation
from pairbench.store.moved import renamed_series
from pairbench.store.reading import Reading

_FOLDER = "calibrations"
_KIND = "calibration 1"


def write_calibration(
    store: str | Path | StoreLocation,
    calibration: Calibration,
    publish: Callable[[str, pa.Buffer], None] | None = None,
) -> str:
    """Store a calibration and return where it lies.

    Args:
        store: A folder or a URL.
        calibration: What is stored.
        publish: What makes the file appear, and its folder; the store itself where not given.

    Raises:
        StoreError: the folder cannot be made.
        StoreFailedError: there is no space or permission.
    """
    path = f"{_FOLDER}/device={device_slug(calibration.device_name)}/{calibration.calibration_id}.json"
    return write_document(StoreLocation.of(store), path, _KIND, calibration, publish)


def read_calibrations(store: str | Path | StoreLocation) -> Reading[tuple[Calibration, ...]]:
    """Return all calibrations, oldest first; none where there is no such store.

    Raises:
        StoreFailedError: the store cannot be listed.
    """
    location = StoreLocation.of(store)
    found, problems = read_documents(location, _FOLDER, _KIND, Calibration)
    here = (
        replace(one, floors={renamed_series(series, location.moved): floor for series, floor in one.floors.items()})
        for one in found
    )
    return Reading(tuple(sorted(here, key=lambda one: one.made_at)), problems)
