"""Makes the plan of a run from suites, a selection and a device: entries to measure, to verify only, and to skip with a reason."""

import fnmatch
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from pairbench.errors import SelectionError
from pairbench.model.case import Case
from pairbench.model.environment import Device, Settings
from pairbench.model.operator import needed_packages
from pairbench.model.plain import Value, grouped
from pairbench.model.plan import BASELINE, BrokenSuite, Entry, OperatorDescription, Plan, PlannedCase
from pairbench.model.record import Record

INTERPRETED = "Triton's interpreter verified it; its times would mean nothing"


class Selection(Value):
    """One SELECT argument: a suite file, an operator in it, an operator anywhere, a glob, or a whole case key."""

    text: str  # the argument as the user wrote it
    suite: str | None
    pattern: str | None
    """A name or glob of operator names or case keys; None for everything in the suite. A `suite` of None stands for any."""

    def takes(self, operator: OperatorDescription, case: Case) -> bool:
        return self.takes_name(operator.suite, operator.name, case.key)

    def takes_name(self, suite: str, operator: str | None, case: str | None) -> bool:
        is_inside = self.suite is not None and self.suite.endswith("/") and suite.startswith(self.suite)
        if self.suite not in (None, suite) and not is_inside:
            return False
        return self.pattern is None or any(matches(name, self.pattern) for name in (operator, case) if name)


def parse_selection(text: str) -> Selection:
    head, separator, tail = text.partition("::")
    if separator:
        return Selection(text=text, suite=head, pattern=tail)
    if re.search(r"\.(py|json|txt)$|/$", text) or ("/" in text and "[" not in text):
        return Selection(text=text, suite=text, pattern=None)
    return Selection(text=text, suite=None, pattern=text)


def narrow(selections: Iterable[Selection]) -> tuple[Selection, ...]:
    """Return selections in which names without a file are confined to the files that are named as a whole."""
    # `a.py 'conv*'` selects operators like `conv*` in a.py, neither all of a.py nor operators elsewhere. `a.py::conv` stands for itself,
    # and where no whole file is named a name is looked for everywhere.
    selections = tuple(selections)
    files = [one for one in selections if one.pattern is None]
    names = [one for one in selections if one.suite is None]
    if not files or not names:
        return selections
    confined = [replace(name, suite=file.suite) for name in names for file in files]
    return (*confined, *(one for one in selections if one not in files and one not in names))


def matches(name: str, pattern: str) -> bool:
    # A case key holds brackets, which a glob would read as a set of characters.
    return name == pattern or fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))


class Wanted(Value):
    """The stored series to take; any where nothing is named."""

    select: tuple[Selection, ...] = ()
    implementations: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    tiers: tuple[str, ...] = ()
    device: str | None = None  # `cpu`, `cuda`, a device model or part of its name; `auto`, `all`, None stand for any

    def takes(
        self, implementation: str | None, mode: str | None, tier: str | None, *, beside: str | None = None
    ) -> bool:
        """Return whether to take a series by the implementation, mode and tier; the implementation `beside` is taken with any that are named."""
        named = implementation == beside or names_implementation(self.implementations, implementation or "")
        return named and (not self.modes or mode in self.modes) and (not self.tiers or tier in self.tiers)

    def selects(self, suite: str, operator: str | None, case: str | None) -> bool:
        return not self.select or any(one.takes_name(suite, operator, case) for one in self.select)

    def devices(self, kinds: Mapping[str, str]) -> frozenset[str]:
        """Return the device models to take among some, each given with its kind: those of the kind or of that name, else those with it in their name."""
        asked = (self.device or "all").lower()
        if asked in ("auto", "all"):
            return frozenset(kinds)
        whole = frozenset(name for name, kind in kinds.items() if asked in (kind, name.lower()))
        return whole or frozenset(name for name in kinds if asked in name.lower())

    def records(self, records: Iterable[Record], *, beside: str | None = None) -> tuple[Record, ...]:
        records = tuple(records)
        devices = self.devices({one.device_name: one.device_kind for one in records})
        here = (one for one in records if one.device_name in devices)
        taken_series = (one for one in here if self.takes(one.implementation, one.mode, one.tier, beside=beside))
        return tuple(one for one in taken_series if self.selects(one.suite, one.operator, one.case))

    def __str__(self) -> str:
        """Return the options that name all of this."""
        several = {"-i": self.implementations, "--mode": self.modes, "--tier": self.tiers}
        named = [f"{option} {value}" for option, values in several.items() for value in values]
        device = [f"--device {self.device}"] if self.device else []
        return " ".join([*(repr(one.text) for one in self.select), *named, *device])


ANY = Wanted()


class Equipment(Value):
    """The device that a plan is for, the number of GPUs of its model, and whether Triton is installed."""

    device: Device
    gpus: int = 1
    triton: bool = True


def make_plan(
    operators: Sequence[OperatorDescription],
    broken: Sequence[BrokenSuite],
    equipment: Equipment,
    settings: Settings,
    selections: Sequence[Selection] = (),
    implementations: Collection[str] = (),
    *,
    edge: bool = False,
) -> Plan:
    """Multiply the selected cases, all where none is named, by implementations and modes; `edge` takes edge cases too, to be verified."""
    check_selections(selections, operators, broken)
    tiers = tiers_for(equipment.device, settings, edge=edge)
    wanted = []
    for operator in operators:
        for case in operator.cases:
            taking = [selection for selection in selections if selection.takes(operator, case)]
            # A case that is named by its key is taken whatever its tier.
            named = any(selection.pattern == case.key for selection in taking)
            if named or (case.tier in tiers and (taking or not selections)):
                wanted.append((operator, case))
    if not broken:
        check_implementations(implementations, [operator for operator, _ in wanted])
    chosen = ((operator, case, taken(operator, implementations)) for operator, case in wanted)
    cases = [_planned(operator, case, names, equipment, settings.modes) for operator, case, names in chosen if names]
    if not cases and not broken:
        have = sorted({case.tier for operator in operators for case in operator.cases}) or ["one that a suite declares"]
        nothing = f"there is nothing to do: no selected case is of the tier {' or '.join(tiers)}"
        raise SelectionError(f"{nothing}; --tier takes {', '.join(have)}")
    return Plan(cases=tuple(cases), broken=tuple(broken))


def check_selections(
    selections: Sequence[Selection], operators: Sequence[OperatorDescription], broken: Sequence[BrokenSuite]
) -> None:
    failed = {suite.suite for suite in broken}
    # An argument that is looked for in several files is several selections.
    for text, meant in grouped((selection.text, selection) for selection in selections).items():
        taken = any(one.takes(operator, case) for one in meant for operator in operators for case in operator.cases)
        if not taken and not any(one.suite in failed for one in meant):
            known = ", ".join(sorted({operator.name for operator in operators})) or "none"
            files = ", ".join(one.suite for one in meant if one.suite is not None and one.pattern == text)
            nothing = f"{text!r} selects nothing{f' of {files}' if files else ''}"
            raise SelectionError(f"{nothing}; operators are: {known} (`pairbench list` shows their cases)")


def same_model(device: Device, devices: tuple[Device, ...]) -> tuple[Device, ...]:
    """Return the GPUs of a GPU's model, itself first, then the others in cyclic order; none for a CPU."""
    if device.kind != "cuda":
        return ()
    gpus = [other for other in devices if other.kind == "cuda" and other.name == device.name]
    at = [other.selector for other in gpus].index(device.selector)
    return tuple(gpus[at:] + gpus[:at])


def equipped(device: Device, devices: tuple[Device, ...], cases: Iterable[PlannedCase]) -> Device:
    """Return a device with as many others beside it as planned entries need, which is none for most."""
    needed = [_gpus(case, entry) for case in cases for entry in case.entries if entry not in case.skipped]
    return replace(device, beside=same_model(replace(device, beside=()), devices)[1 : max(needed, default=1)])


def left_to(plan: Plan, leader: Device) -> Plan:
    """Return a plan without entries that use several GPUs: the leader, a GPU of the same model, measures them for all."""
    # Otherwise every session would hold every GPU, and none could run beside another.
    reason = f"uses several GPUs, and is measured on {leader.selector}, which takes the others along"

    def left(planned: PlannedCase) -> PlannedCase:
        several = [entry for entry in planned.entries if entry not in planned.skipped and _gpus(planned, entry) > 1]
        return replace(planned, skipped=planned.skipped | dict.fromkeys(several, reason))

    return replace(plan, cases=tuple(left(planned) for planned in plan.cases))


def _gpus(planned: PlannedCase, entry: Entry) -> int:
    return planned.operator.implementation(entry.implementation).gpus


def tiers_for(device: Device, settings: Settings, *, edge: bool) -> tuple[str, ...]:
    """Return the tiers to take: those of the settings, or those that suit the device, with edge cases only on demand."""
    if settings.tiers:
        return settings.tiers
    timed = ("smoke",) if device.kind == "cpu" else ("smoke", "real", "headline")
    return ("edge", *timed) if edge else timed


def typical(cases: Iterable[PlannedCase], device: Device) -> PlannedCase:
    """Return the case to look at where one is enough: the first real one on a GPU, the first smoke one on a CPU."""
    order = ("smoke", "edge", "real", "headline") if device.kind == "cpu" else ("real", "headline", "smoke", "edge")
    return min(cases, key=lambda planned: order.index(planned.case.tier))


def one_of_each(
    cases: Sequence[PlannedCase], selections: Sequence[Selection], device: Device
) -> tuple[PlannedCase, ...]:
    """Return the cases that are selected by their keys, and a typical one of each other operator."""
    by_operator = grouped(((planned.operator.suite, planned.operator.name), planned) for planned in cases)
    taken: list[PlannedCase] = []
    for (suite, operator), of_operator in by_operator.items():
        # A selection that takes the whole operator names none of its cases.
        naming = [one for one in selections if one.pattern is not None and not one.takes_name(suite, operator, None)]
        named = [item for item in of_operator if any(one.takes_name(suite, None, item.case.key) for one in naming)]
        taken += named or [typical(of_operator, device)]
    return tuple(taken)


def names_implementation(wanted: Collection[str], name: str) -> bool:
    return not wanted or any(matches(name, pattern) for pattern in wanted)


def taken(operator: OperatorDescription, wanted: Collection[str]) -> tuple[str, ...]:
    named = {item.name for item in operator.implementations if names_implementation(wanted, item.name)}
    return tuple(item.name for item in operator.implementations if named and item.name in {BASELINE, *named})


def check_implementations(implementations: Iterable[str], operators: Iterable[OperatorDescription]) -> None:
    known = {item.name for operator in operators for item in operator.implementations}
    for pattern in implementations:
        if known and not any(names_implementation((pattern,), name) for name in known):
            have = ", ".join(sorted(known))
            raise SelectionError(f"--implementation {pattern!r} is none of the selected operators', which have {have}")


def _planned(
    operator: OperatorDescription, case: Case, names: tuple[str, ...], equipment: Equipment, modes: tuple[str, ...]
) -> PlannedCase:
    device = equipment.device
    entries = tuple(Entry(implementation=name, mode=mode) for mode in modes for name in names)
    skipped, untimed = dict[Entry, str](), dict[Entry, str]()
    for entry in entries:
        if reason := _unmet(operator, entry, equipment):
            skipped[entry] = reason
        elif device.kind == "cpu" and "triton" in operator.implementation(entry.implementation).needs:
            untimed[entry] = INTERPRETED
    return PlannedCase(operator=operator, case=case, entries=entries, untimed=untimed, skipped=skipped)


def _unmet(operator: OperatorDescription, entry: Entry, equipment: Equipment) -> str | None:
    device, gpus, implementation = equipment.device, equipment.gpus, operator.implementation(entry.implementation)
    for need in implementation.needs:
        if need == "triton" and not equipment.triton:
            return "needs Triton, which is not installed"
        if need in ("cpu", "cuda") and device.kind != need:
            return f"needs {'a CPU' if need == 'cpu' else 'a CUDA device'}; this is {device.selector}"
        if need.startswith("gpus:") and (device.kind != "cuda" or gpus < implementation.gpus):
            return f"needs {implementation.gpus} GPUs; here are {gpus if device.kind == 'cuda' else 0}"
        have = 0 if device.capability is None else device.capability[0] * 10 + device.capability[1]
        if need.startswith("sm_") and have < int(need.removeprefix("sm_")):
            return f"needs {need} or newer; this is {f'sm_{have}' if have else device.selector}"
    for package in needed_packages(implementation.needs):
        installed = implementation.packages.get(package.name)
        if installed is None:
            return f"needs {package}, which is not installed"
        if not package.specifier.contains(installed, prereleases=True):
            return f"needs {package}; installed is {installed}"
    if device.kind != "cuda" and entry.mode == "graph":
        return "mode graph needs a CUDA device"
    interpreted = device.kind != "cuda" and entry.mode != "eager" and "triton" in implementation.needs
    return "torch.compile cannot go through Triton's interpreter" if interpreted else None
