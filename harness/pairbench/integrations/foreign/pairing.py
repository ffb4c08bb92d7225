"""Which parameter of somebody's benchmarks tells implementations apart, and what each benchmark then is to us."""

from collections.abc import Iterable
from dataclasses import dataclass

from pairbench.errors import UsageError
from pairbench.integrations.foreign.names import word
from pairbench.integrations.foreign.values import Axes, Result
from pairbench.model.case import format_value
from pairbench.model.plan import BASELINE


@dataclass(frozen=True, kw_only=True)
class Pairing:
    """The parameter whose values are implementations of one operator."""

    axis: str
    baseline: str = BASELINE
    """Value of the parameter for the plain implementation."""

    @classmethod
    def parse(cls, text: str) -> "Pairing":
        """Return what `AXIS` or `AXIS:BASELINE` means.

        Raises:
            UsageError: it is neither.
        """
        axis, colon, baseline = text.partition(":")
        if not axis or (colon and not baseline):
            raise UsageError(
                f"--implementation {text!r}: expected AXIS or AXIS:BASELINE, such as implementation:reference"
            )
        return cls(axis=axis, baseline=word(baseline) if baseline else BASELINE)

    def split(self, result: Result) -> tuple[str, Axes]:
        """Return the implementation that a result is of, and the axes that are left."""
        axes = dict(result.axes)
        if self.axis not in axes:
            return BASELINE, result.axes
        value = format_value(axes.pop(self.axis))
        return BASELINE if value == self.baseline else value, tuple(axes.items())

    def check(self, results: Iterable[Result]) -> None:
        """Refuse a pairing that pairs nothing.

        Raises:
            UsageError: no result has such a parameter, or it has no such value.
        """
        values: set[str] = set()
        axes: set[str] = set()
        empty = True
        for result in results:  # once through: a history is long
            empty = False
            axes.update(axis for axis, _ in result.axes)
            values.update(format_value(value) for axis, value in result.axes if axis == self.axis)
        if empty:
            return  # nothing could be read, and that is what has to be said
        if not values:
            raise UsageError(
                f"--implementation {self.axis!r}: no benchmark has such a parameter, expected one of "
                f"{', '.join(sorted(axes)) or 'none, for none has any'}"
            )
        if self.baseline not in values:
            raise UsageError(
                f"--implementation {self.axis}: it never is {self.baseline!r}, so there is no baseline; expected "
                f"{self.axis}:BASELINE with one of {', '.join(sorted(values))}"
            )
        if self.baseline != BASELINE and BASELINE in values:
            raise UsageError(
                f"--implementation {self.axis}:{self.baseline}: another of its values is called {BASELINE!r}, which is what "
                "the baseline is called here; leave BASELINE out, or rename that value"
            )


def split(result: Result, pairing: Pairing | None) -> tuple[str, Axes]:
    """Return the implementation that a result is of, and the axes of its case; everything is a baseline without a pairing."""
    return pairing.split(result) if pairing else (BASELINE, result.axes)
