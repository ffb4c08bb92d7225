"""Where calls spent their time, as far as somebody kept it: `<store>/breakdowns/device=<slug>/<breakdown_id>.json`."""

from dataclasses import replace
from pathlib import Path

from pairbench.model.breakdown import KeptBreakdown
from pairbench.model.environment import device_slug
from pairbench.store.documents import read_documents, write_document
from pairbench.store.location import StoreLocation
from pairbench.store.reading import Reading

_FOLDER = "breakdowns"
_KIND = "breakdown 1"


def write_breakdown(store: str | Path | StoreLocation, kept: KeptBreakdown) -> str:
    """Store the breakdowns of a case and return where they lie.

    Raises:
        StoreError: the folder cannot be made.
        StoreFailedError: there is no space or permission.
    """
    return write_document(
        StoreLocation.of(store),
        f"{_FOLDER}/device={device_slug(kept.device_name)}/{kept.breakdown_id}.json",
        _KIND,
        kept,
    )


def read_breakdowns(store: str | Path | StoreLocation) -> Reading[tuple[KeptBreakdown, ...]]:
    """Return all that were kept, the newest first; none where there is no such store.

    Raises:
        StoreFailedError: the store cannot be listed.
    """
    location = StoreLocation.of(store)
    found, problems = read_documents(location, _FOLDER, _KIND, KeptBreakdown)
    here = (replace(kept, suite=location.moved.get(kept.suite, kept.suite)) for kept in found)
    return Reading(tuple(sorted(here, key=lambda kept: (kept.made_at, kept.breakdown_id), reverse=True)), problems)
