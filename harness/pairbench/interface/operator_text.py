"""Operators as the text of a suite, for those that no suite file declares."""

from collections.abc import Mapping, Sequence
from typing import Any

from pairbench.interface.source import SourceText
from pairbench.model.case import Case
from pairbench.model.operator import Operator, Variant
from pairbench.model.tolerance import Tolerance

Cases = Sequence[Mapping[str, Any]] | Mapping[str, Sequence[Mapping[str, Any]]]
"""Cases as `Operator(cases=)` takes them: a list of points, or one for each tier."""


def with_cases(operator: Operator, cases: Cases | None) -> Operator:
    """Return an operator with other cases; itself where none are given.

    Raises:
        DeclarationError: the cases are none of this operator.
    """
    if cases is None:
        return operator
    given: dict[str, Any] = {**vars(operator), "cases": cases, "claims": ()}
    del given["direction"], given["tf32"]  # a worker's
    return Operator(given.pop("name"), **given)


def add_operator(source: SourceText, operator: Operator) -> None:
    """Add the declaration of an operator, and all that it uses, to the text of a suite.

    Raises:
        UsageError: something of it cannot be sent to another process.
    """
    what = f"operator {operator.name!r}"
    callables = {
        "inputs": operator.inputs,
        "oracle": operator.oracle,
        "cost": operator.cost,
        "reset": operator.reset,
    }
    arguments = {
        "baseline": _variant(source, operator.baseline, f"the baseline of {what}"),
        "variants": _variants(source, operator.variants, f"of {what}", "variant"),
        "impostors": operator.impostors and _variants(source, operator.impostors, f"of {what}", "impostor"),
        "cases": _cases(operator.cases),
        **{name: source.expression(value, f"{name}= of {what}") for name, value in callables.items() if value},
        "tolerance": operator.tolerance != Tolerance()
        and source.expression(operator.tolerance, f"tolerance= of {what}"),
        "gradient_tolerance": operator.gradient_tolerance is not None
        and source.expression(operator.gradient_tolerance, f"gradient_tolerance= of {what}"),
        "claims": operator.claims and source.expression(operator.claims, f"claims= of {what}"),
        **{
            name: repr(value)
            for name in ("constants", "state", "gradients", "accepts_constant", "source", "owner")
            if (value := getattr(operator, name))
        },
    }
    lines = "".join(f"    {name}={value},\n" for name, value in arguments.items() if value)
    declared = f"{source.imported('pairbench')}.Operator(\n    {operator.name!r},\n{lines})"
    source.add(f"{source.free_name('_operator')} = {declared}")


def _variants(source: SourceText, variants: Mapping[str, Variant], of: str, what: str) -> str:
    items = (f"{name!r}: {_variant(source, one, f'{what} {name!r} {of}')}" for name, one in variants.items())
    return f"{{{', '.join(items)}}}"


def _variant(source: SourceText, variant: Variant, what: str) -> str:
    function = source.expression(variant.function, what)
    more = {
        "prepare": variant.prepare and source.expression(variant.prepare, f"prepare= of {what}"),
        "valid": variant.valid and source.expression(variant.valid, f"valid= of {what}"),
        "needs": variant.needs and repr(variant.needs),
        "builds_on": variant.builds_on and repr(variant.builds_on),
        "consumes": variant.consumes and repr(variant.consumes),
    }
    given = "".join(f", {name}={text}" for name, text in more.items() if text)
    return f"{source.imported('pairbench')}.Variant({function}{given})" if given else function


def _cases(cases: tuple[Case, ...]) -> str:
    tiers: dict[str, list[dict[str, Any]]] = {}
    for case in cases:
        tiers.setdefault(case.tier, []).append(dict(case.axes))
    return repr(tiers)
