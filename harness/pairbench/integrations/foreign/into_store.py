"""Puts imported runs into a store, each once."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from pairbench.integrations.foreign.records import ImportedRun
from pairbench.integrations.foreign.values import ImportFailedError
from pairbench.model.environment import device_slug
from pairbench.model.record import Record, Samples
from pairbench.store.location import StoreLocation
from pairbench.store.reading import stored_files
from pairbench.store.writer import write_run

Row = TypeVar("Row", Record, Samples)

_IMPORTED = re.compile(r"\d{8}T\d{6}-([0-9a-f]{16})")


class Intake:
    """A store that takes runs in."""

    def __init__(self, store: str | Path) -> None:
        """Find out which runs are there.

        Raises:
            StoreError: it cannot be listed.
        """
        self._place = StoreLocation.of(store)
        self._known: dict[str, str] = {}
        self._slugs: defaultdict[str, set[str]] = defaultdict(set)
        for file in stored_files(self._place, "records").files:
            for run_id in file.run_ids:
                self._add(run_id, file.device_slug)

    def take(self, run: ImportedRun) -> str | None:
        """Store what the store has not of a run, which may have been interrupted as it was imported.

        Returns:
            The id that the run has in the store where all of it is there already, else None.

        Raises:
            ImportFailedError: a value fits no column.
            StoreFailedError: it cannot be written.
        """
        run_id = self.run_id_of(run)
        kinds = {record.device_name: record.device_kind for record in run.records}
        slugs = {name: device_slug(name, kind) for name, kind in kinds.items()}
        # A device model's records are one file, the last that is written of it.
        missing = sorted(set(slugs.values()) - self._slugs[run_id])
        for slug in missing:
            names = {name for name in slugs if slugs[name] == slug}
            try:
                write_run(
                    self._place,
                    run_id=run_id,
                    device_slug=slug,
                    month=f"{run_id[:4]}-{run_id[4:6]}",
                    records=_own(run.records, names, run_id),
                    samples=_own(run.samples, names, run_id),
                )
            except TypeError as error:
                raise ImportFailedError(f"{run.source}: holds what a store does not take: {error}") from error
            self._add(run_id, slug)
        return None if missing else run_id

    def run_id_of(self, run: ImportedRun) -> str:
        """Return the id that a run has in the store: another one where its file was imported with another time."""
        return self._known.get(run.run_id) or self._known.get(_content(run.run_id)) or run.run_id

    def _add(self, run_id: str, slug: str) -> None:
        self._slugs[run_id].add(slug)
        self._known[run_id] = run_id
        if content := _content(run_id):
            self._known[content] = run_id


def _content(run_id: str) -> str:
    """Return what an id says of the file that a run was imported from: the same file at another time is the same run."""
    match = _IMPORTED.fullmatch(run_id)
    return match[1] if match else ""


def _own(rows: Sequence[Row], device_names: set[str], run_id: str) -> list[Row]:
    """Return the rows of some devices, under the id that the run has in the store."""
    return [replace(row, run_id=run_id) for row in rows if row.device_name in device_names]
