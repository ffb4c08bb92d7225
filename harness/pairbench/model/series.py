"""The identity of a series: one implementation of one case in one mode on one device model, over runs."""

import fnmatch
import functools
from dataclasses import dataclass, fields

from pairbench.model.record import Record


@dataclass(frozen=True, kw_only=True, order=True)
class Series:
    """The identity of a series: what stays the same from run to run.

    The definition's hash is no part of it, so that a change of definition differs from a new case; records of
    different definitions are never compared.
    """

    device_name: str
    suite: str
    case: str
    """Key of the case, which begins with the operator's name."""
    implementation: str
    mode: str

    @classmethod
    def of(cls, record: Record) -> "Series | None":
        """Return the series that a record belongs to; None for that of a suite which could not be loaded."""
        if record.case is None or record.implementation is None or record.mode is None:
            return None
        return _series(record.device_name, record.suite, record.case, record.implementation, record.mode)

    @property
    def operator(self) -> str:
        """The operator's name."""
        return self.case.partition("[")[0]

    @property
    def name(self) -> str:
        """The series' name on the command line; the device is added where several have it."""
        return f"{self.suite}::{self.case}-{self.implementation}-{self.mode}"


@functools.lru_cache(maxsize=2**16)  # a history has each of them in every run
def _series(device_name: str, suite: str, case: str, implementation: str, mode: str) -> Series:
    return Series(device_name=device_name, suite=suite, case=case, implementation=implementation, mode=mode)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which implementations and modes of stored series are meant; any where none is named."""

    implementations: tuple[str, ...] = ()
    """Names or globs."""
    modes: tuple[str, ...] = ()

    def takes(self, implementation: str | None, mode: str | None, *, beside: str | None = None) -> bool:
        """Return whether a series or record of an implementation and mode is meant.

        Args:
            implementation: Its name; None for what could not be loaded, which has no part in it.
            mode: Its mode.
            beside: An implementation that is taken with whatever is named.
        """
        named = not self.implementations or implementation == beside
        named = named or any(fnmatch.fnmatchcase(implementation or "", glob) for glob in self.implementations)
        return named and (not self.modes or mode in self.modes)


COLUMNS = tuple(item.name for item in fields(Series))
"""The columns of a record that identify its series."""
ANY = Wanted()
