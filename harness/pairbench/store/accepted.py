"""New levels that were accepted on purpose: `<store>/accepted/<time>-<hash>.json`, reviewable in a diff."""

import hashlib
import re
from dataclasses import replace
from pathlib import Path

from pairbench.model.acceptance import Acceptance
from pairbench.model.series import Series
from pairbench.store.documents import read_documents, write_document
from pairbench.store.location import StoreLocation
from pairbench.store.moved import renamed_series
from pairbench.store.reading import Reading

_FOLDER = "accepted"
_KIND = "acceptance 1"


def write_acceptance(store: str | Path | StoreLocation, acceptance: Acceptance) -> str:
    """Store an acceptance and return where it lies.

    Raises:
        StoreError: the folder cannot be made.
        StoreFailedError: there is no space or permission.
    """
    what = hashlib.sha256(repr((acceptance.series, acceptance.run_id, acceptance.reason)).encode()).hexdigest()
    when = re.sub(r"[-:]|\..*|\+.*", "", acceptance.at)
    return write_document(StoreLocation.of(store), f"{_FOLDER}/{when}-{what[:10]}.json", _KIND, acceptance)


def read_acceptances(store: str | Path | StoreLocation) -> Reading[dict[Series, Acceptance]]:
    """Return the newest acceptance of each series; none where there is no such store.

    Raises:
        StoreFailedError: the store cannot be listed.
    """
    location = StoreLocation.of(store)
    found, problems = read_documents(location, _FOLDER, _KIND, Acceptance)
    here = (replace(one, series=renamed_series(one.series, location.moved)) for one in found)
    return Reading({one.series: one for one in sorted(here, key=lambda one: one.at)}, problems)
