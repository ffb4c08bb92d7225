"""What a run measures and leaves out when it is asked for changes since a commit. It is printed, and recorded with the run."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pairbench.model.plan import OperatorDescription

_NAMED = 40
"""How many names a line has; JSON has them all."""

OperatorKey = tuple[str, str]
"""The suite and the name of an operator."""


@dataclass(frozen=True, kw_only=True)
class Narrowed:
    """The operators that differ from those of a commit, the untouched ones beside them, and those that are left out."""

    ref: str
    """The commit, branch or tag as the user named it."""
    sha: str
    changed: dict[OperatorKey, str]
    """What differs, for each operator that is measured for it."""
    whole: frozenset[OperatorKey]
    """Operators that are taken with all of their cases."""
    control: dict[OperatorKey, str]
    """The case of each untouched operator that is measured to tell whether the machine has moved."""
    left_out: tuple[OperatorKey, ...]
    """The untouched operators that are not measured."""
    gone: tuple[tuple[str, str | None], ...] = ()
    """Suite and name of the operators of the commit that are not there any more; no name for a whole suite."""

    def select(
        self, operators: Iterable[OperatorDescription], tiers: Collection[str], named: Collection[str | None]
    ) -> Iterator[tuple[str, str | None]]:
        """Yield suite and pattern of everything that is asked for, what is gone included: that is missing, and not left out."""
        for operator in operators:
            if (operator.suite, operator.name) in self.whole:
                yield operator.suite, operator.name
            else:
                yield from (
                    (operator.suite, case.key) for case in operator.cases if case.tier in tiers or case.key in named
                )
        yield from self.gone

    def lines(self) -> list[str]:
        """Return what is measured and what is left out, in words."""
        since = f"{self.ref} ({self.sha[:7]})"
        untouched = f"{_count(len(self.left_out), 'operator')} untouched and left out: {_names(self.left_out)}"
        gone = [name if name is not None else suite for suite, name in self.gone]
        lines = [f"Gone since {since}: {_listed(gone)}"] if gone else []
        if not self.changed:
            return [f"No operator differs from {since}", *lines, *([untouched] if self.left_out else [])]
        changed = [f"{name} ({reason})" for (_, name), reason in self.changed.items()]
        lines.insert(0, f"Changed since {since}: {_listed(changed)}")
        if self.control:
            lines.append(
                f"Untouched, as a control that tells whether the machine moved: {_listed([*self.control.values()])}"
            )
        return [*lines, *([untouched] if self.left_out else [])]

    def plain(self) -> dict[str, Any]:
        """Return everything as a document."""
        return {
            "ref": self.ref,
            "commit": self.sha,
            "changed": [{**_plain(key), "reason": reason} for key, reason in self.changed.items()],
            "control": [{**_plain(key), "case": case} for key, case in self.control.items()],
            "left_out": [_plain(key) for key in self.left_out],
            "gone": [_plain(key) for key in self.gone],
        }


def _plain(key: tuple[str, str | None]) -> dict[str, str | None]:
    return {"suite": key[0], "operator": key[1]}


def _names(keys: Iterable[OperatorKey]) -> str:
    return _listed([name for _, name in keys])


def _listed(names: Sequence[str]) -> str:
    more = f", and {len(names) - _NAMED} more (--format json names all)" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
