"""What comparing a device with itself has shown: `<store>/calibrations/device=<slug>/<calibration_id>.json`."""

from pathlib import Path

from pairbench.model.comparison import Calibration
from pairbench.model.environment import device_slug
from pairbench.store.documents import read_documents, write_document
from pairbench.store.location import StoreLocation
from pairbench.store.reader import Reading

_FOLDER = "calibrations"
_KIND = "calibration 1"


def write_calibration(store: str | Path | StoreLocation, calibration: Calibration) -> str:
    """Store a calibration and return where it lies.

    Raises:
        StoreError: there is no space or permission.
    """
    path = f"{_FOLDER}/device={device_slug(calibration.device_name)}/{calibration.calibration_id}.json"
    return write_document(StoreLocation.of(store), path, _KIND, calibration)


def read_calibrations(store: str | Path | StoreLocation) -> Reading[tuple[Calibration, ...]]:
    """Return all calibrations, oldest first; none where there is no such store.

    Raises:
        StoreError: the store cannot be listed.
    """
    stored, problems = read_documents(StoreLocation.of(store), _FOLDER, _KIND, Calibration)
    return Reading(tuple(sorted(stored, key=lambda calibration: calibration.made_at)), problems)
