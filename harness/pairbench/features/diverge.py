"""`pairbench diverge`: variant and baseline run on the same inputs, and the outputs of modules of one name are compared.

The text says which module is the first beyond tolerance, how errors grow, and which side is nearer to float64.
"""

from typing import Any

from pairbench.config import Config
from pairbench.errors import SelectionError
from pairbench.execute.protocol import DivergeCase
from pairbench.model.breakdown import CaseDivergence, Divergence, Gap, Layer, NotInspected
from pairbench.model.plain import grouped
from pairbench.report.render import clean, markdown_text, render_rows, to_json
from pairbench.report.units import error, listed, merge_numbered, outermost, percent
from pairbench.workflow.devices import open_case

_ROWS = 48
_AROUND = 3  # rows before and after the first module beyond tolerance that are always shown


def render_divergence(divergence: CaseDivergence, output: str, *, everything: bool = False) -> str:
    if output == "json":
        return to_json({"divergence": _plain(divergence)})
    escape = markdown_text if output == "markdown" else clean
    part = divergence.result
    head = f"{divergence.case.key} ({divergence.operator.suite}, {divergence.device.name}): {part.entry.implementation} against the baseline"
    if isinstance(part, NotInspected):
        return f"{escape(head)}\n\n{escape(part.reason)}\n"
    rows, left_out = layer_rows(part, everything=everything)
    parts = [f"{escape(head)}\n", "\n".join(escape(sentence) for sentence in sentences(part)) + "\n"]
    parts.append(render_rows("outputs of modules, in the order of finishing", rows, output))
    if left_out:
        parts.append(escape(f"Left out: {left_out} of {len(part.layers)} calls. --all shows them.") + "\n")
    return "\n".join(parts)


def sentences(part: Divergence) -> list[str]:
    lines = _verdict(part) + _nearer_to_float64(part)
    if part.oracle_missing:
        lines.append(f"No oracle: {part.oracle_missing}.")
    if contained := [layer.module for layer in part.layers if layer.contained]:
        off = "Off, but not the module around it, as where the same lies in another order"
        lines.append(f"{off}: {listed(merge_numbered(contained))}.")
    for what, names in (("baseline", part.only_baseline), ("variant", part.only_variant)):
        if names:
            lines.append(f"In the {what} only: {listed(merge_numbered(outermost(names)))}.")
    uneven = grouped(((baseline, variant), name) for name, baseline, variant in part.uncalled)
    for (baseline, variant), modules in uneven.items():
        never = "never by the variant (what is compiled or fused is no call)"
        calls = f"{variant}x by the variant" if variant else never
        lines.append(f"Called {baseline}x by the baseline, {calls}: {listed(merge_numbered(outermost(modules)))}.")
    return lines


def _verdict(part: Divergence) -> list[str]:
    first = part.first
    if not part.layers:
        return ["No module is called by both, so nothing can be compared."]
    if first is None:
        none = "No module's output leaves the tolerance"
        if part.output_mismatch:
            where = "the error is made behind the last module, or in what cannot be compared"
            return [f"{none}, and yet the operator's does: {where}. {part.output_mismatch}."]
        along = " and takes the module around it along" if any(layer.off for layer in part.layers) else ""
        return [f"{none}{along}, and the operator's do not leave it either."]
    assert first.gap is not None
    compared = [layer for layer in part.layers[: part.layers.index(first)] if layer.gap]
    lines = [f"{_name(first)} is the first whose output leaves the tolerance: {_gap(first.gap)}."]
    if part.inputs is None:
        lines.append("What goes into it cannot be compared.")
    elif part.inputs.within:
        lines.append(f"What goes into it is within the tolerance ({_gap(part.inputs)}): the error is made in it.")
    else:
        behind = f", behind {_name(compared[-1])}" if compared else ""
        where = f"the error is made before it, in code that is in no module of its own{behind}"
        lines.append(f"What goes into it is off already ({_gap(part.inputs)}): {where}.")
    if part.output_mismatch is None:
        lines.append("The operator's outputs are within the tolerance nevertheless.")
    return lines


def _nearer_to_float64(part: Divergence) -> list[str]:
    first, worse = part.first, part.first_worse
    if first is None and worse is None:
        return []
    lines = []
    if first and _errors(first):
        lines.append(f"Against float64 (relative L2) the baseline of {_name(first)} {_errors(first)}.")
    further = "clearly further from float64 than the baseline"
    if worse is not None:
        module = "it" if worse is first else f"{_name(worse)}: the baseline {_errors(worse)}"
        lines.append(f"The first that is {further} (over twice as far) is {module}.")
    elif part.oracle_missing is None:
        lines.append(f"No module is {further}'s, so this is rounding, in another order.")
    return lines


def _errors(layer: Layer) -> str:
    if layer.baseline_oracle is None or layer.variant_oracle is None:
        return ""
    return f"is off by {error(layer.baseline_oracle)}, the variant by {error(layer.variant_oracle)}"


def _name(layer: Layer) -> str:
    again = f", call {layer.call + 1}," if layer.call else ""
    return f"{layer.module or 'the whole'} ({layer.class_name}){again}"


def _gap(gap: Gap) -> str:
    return f"relative L2 {error(gap.rel_l2) or 'unknown'}, largest difference {error(gap.max_abs)}, {percent(gap.beyond)} of the elements beyond"


def layer_rows(part: Divergence, *, everything: bool = False) -> tuple[list[dict[str, Any]], int]:
    """Return the rows of the table, and the number of calls left out."""
    layers = list(enumerate(part.layers))
    if not everything and len(layers) > _ROWS:
        layers = _chosen(layers, part.layers.index(part.first) if part.first else None)
    return [_row(layer, part) for _, layer in layers], len(part.layers) - len(layers)


def _chosen(layers: list[tuple[int, Layer]], at: int | None) -> list[tuple[int, Layer]]:
    """Return the layers around the first one beyond tolerance, and the outer blocks that fit, evenly thinned."""
    near = [pair for pair in layers if at is not None and abs(pair[0] - at) <= _AROUND]
    room = _ROWS - len(near)
    above = {layer.module.rpartition(".")[0] for _, layer in layers}
    # The blocks of a network: members of a list with modules of their own; and what they consist of.
    blocks = [pair for pair in layers if _is_listed(pair[1].module) and pair[1].module in above]
    names = {layer.module for _, layer in blocks}
    pieces = [pair for pair in layers if pair[1].module in names or pair[1].module.rpartition(".")[0] in names]
    some = next((choice for choice in (pieces, blocks) if 0 < len(choice) <= room), blocks or layers)
    thinned = [some[round(index * (len(some) - 1) / max(1, room - 1))] for index in range(room)]
    return sorted(dict(near + (some if len(some) <= room else thinned)).items())


def _is_listed(name: str) -> bool:
    *outer, last = name.split(".")
    return last.isdecimal() and not any(part.isdecimal() for part in outer)


def _row(layer: Layer, part: Divergence) -> dict[str, Any]:
    gap = layer.gap
    baseline, variant = layer.dtypes
    off = "first" if layer is part.first else "off, not around it" if layer.contained else "off" if layer.off else ""
    return {
        "module": layer.module or "the whole",
        "class": layer.class_name,
        "call": layer.call + 1,
        "rel_l2": error(gap.rel_l2) if gap else "",
        "max_abs": error(gap.max_abs) if gap else "",
        "beyond": percent(gap.beyond) if gap else "",
        "dtype": baseline if baseline == variant else f"{baseline} / {variant}",
        "baseline_to_float64": error(layer.baseline_oracle),
        "variant_to_float64": error(layer.variant_oracle),
        "remark": layer.incomparable or ", ".join(filter(None, (off, "further from float64" if layer.worse else ""))),
    }


def _plain(divergence: CaseDivergence) -> dict[str, Any]:
    part = divergence.result
    document = {**divergence.named(), "variant": part.entry.implementation}
    if isinstance(part, NotInspected):
        return {**document, "reason": part.reason}
    first, worse = part.first, part.first_worse
    return {
        **document,
        "bad": part.bad,
        "first": None if first is None else {"module": first.module, "call": first.call, "inputs": part.inputs},
        "first_worse": None if worse is None else {"module": worse.module, "call": worse.call},
        "sentences": sentences(part),
        "layers": part.layers,
        "only_baseline": part.only_baseline,
        "only_variant": part.only_variant,
        "uncalled": [dict(zip(("module", "baseline", "variant"), one, strict=True)) for one in part.uncalled],
        "oracle_missing": part.oracle_missing,
        "output_mismatch": part.output_mismatch,
    }


def find_divergence(config: Config, operator: str, case: str | None, device: str, variant: str) -> CaseDivergence:
    with open_case(config, operator, case, device) as whole:
        known = {entry.implementation: entry for entry in whole.planned.entries if entry.role == "variant"}
        if variant not in known:
            name = whole.planned.operator.name
            raise SelectionError(f"{name} has no variant {variant!r}, expected one of {', '.join(known)}")
        one = whole.only((known[variant],))
        # Triton's interpreter computes what the kernels do, which is all that is asked here.
        found: Divergence | NotInspected
        (found,) = one.inspect("diverge", one.planned.skipped, DivergeCase, interpret=one.device.kind == "cpu")
        return CaseDivergence(operator=one.planned.operator, case=one.planned.case, device=one.device, result=found)
