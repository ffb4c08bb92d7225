import json
from dataclasses import replace
from pathlib import Path

import pytest

from pairbench.features.diverge import layer_rows, render_divergence, sentences
from pairbench.model.breakdown import CaseDivergence, Divergence, Gap, Layer, NotInspected
from pairbench.model.case import Case
from pairbench.model.environment import Device
from pairbench.model.plan import Entry
from pairbench.report.units import listed, merge_numbered, outermost
from tests.builders import described
from tests.golden import assert_golden

ENTRY = Entry(implementation="fused", mode="eager")
FINE = Gap(max_abs=1e-3, rel_l2=2e-4, beyond=0.0, within=True)
OFF = Gap(max_abs=0.5, rel_l2=0.2, beyond=0.25, within=False)


def layer(module: str, gap: Gap | None = FINE, *, call: int = 0, worse: bool = False) -> Layer:
    return Layer(
        module=module,
        class_name="Linear",
        call=call,
        dtypes=("bfloat16", "bfloat16"),
        gap=gap,
        incomparable=None if gap else "shape [2], the baseline's is [3]",
        baseline_oracle=0.003,
        variant_oracle=0.2 if worse else 0.0031,
        worse=worse,
    )


LAYERS = (layer("net.0"), layer("net.1", None), layer("net.2", OFF, worse=True), layer("net", OFF))
FOUND = Divergence(entry=ENTRY, layers=LAYERS, inputs=FINE, output_mismatch="output differs")


def case(found: Divergence | NotInspected) -> CaseDivergence:
    operator = described(suite="net.py", path="/somewhere/net.py", name="net", implementations=())
    return CaseDivergence(
        operator=operator,
        case=Case(operator="net", axes=(("n", 1),), tier="real"),
        device=Device(selector="cpu", kind="cpu", name="a CPU"),
        result=found,
    )


def test_what_comes_in_wrong_was_made_before() -> None:
    said = sentences(replace(FOUND, inputs=OFF))[1]
    assert "the error is made before it" in said and said.endswith("behind net.0 (Linear).")
    assert "cannot be compared" in sentences(replace(FOUND, inputs=None))[1]


def test_rounding_is_called_rounding() -> None:
    rounded = replace(FOUND, layers=(layer("net.0", OFF),), output_mismatch=None)
    said = " ".join(sentences(rounded))
    assert "The operator's outputs are within the tolerance nevertheless." in said and "this is rounding" in said
    assert "rounding" not in " ".join(
        sentences(replace(rounded, oracle_missing="the baseline does not run in float64: x"))
    )


def test_what_is_off_inside_of_what_is_not_is_told_apart() -> None:
    inside = replace(layer("net.cache", OFF, worse=True), contained=True)
    found = replace(FOUND, layers=(inside, layer("net")), inputs=None, output_mismatch=None)
    first, second = sentences(found)
    assert found.first is None and not found.bad
    assert first.startswith("No module's output leaves the tolerance and takes the module around it along")
    assert second.endswith("in another order: net.cache.")
    assert layer_rows(found)[0][0]["remark"] == "off, not around it, further from float64"


def test_no_module_off_is_said_and_an_output_that_is_off_is_not_hidden() -> None:
    fine = replace(FOUND, layers=(layer("net.0"),), inputs=None, output_mismatch=None)
    assert sentences(fine) == ["No module's output leaves the tolerance, and the operator's do not leave it either."]
    (said,) = sentences(replace(fine, output_mismatch="output differs"))
    assert "behind the last module" in said and said.endswith("output differs.")
    assert sentences(replace(fine, layers=())) == ["No module is called by both, so nothing can be compared."]


def test_modules_on_one_side_are_listed_in_few_words() -> None:
    found = replace(
        FOUND,
        only_baseline=tuple(f"net.{place}.{name}" for place in range(30) for name in ("q", "q.norm", "k")),
        uncalled=(("net.1", 2, 0), ("net.1.ffn", 2, 0), ("net.2", 1, 3)),
    )
    said = sentences(found)
    assert "In the baseline only: net.*.q, net.*.k." in said
    assert "Called 2x by the baseline, never by the variant (what is compiled or fused is no call): net.1." in said
    assert "Called 1x by the baseline, 3x by the variant: net.2." in said


def test_names() -> None:
    assert outermost(["a.b", "a", "a.c", "ab"]) == ["a", "ab"]
    assert merge_numbered(["a.0.b", "a.1.b", "a.2", "c"]) == ["a.*.b", "a.2", "c"]
    assert listed(["a", "b", "c"], 2) == "a, b and 1 more"


def test_a_long_table_is_thinned_and_keeps_what_matters() -> None:
    layers = [
        layer(f"net.blocks.{place}{tail}", call=call)
        for call in range(8)
        for place in range(30)
        for tail in (".q", ".ffn.0", ".ffn", "")
    ]
    layers[501] = replace(layers[501], gap=OFF)
    long = replace(FOUND, layers=tuple(layers))
    rows, left_out = layer_rows(long)
    assert len(rows) + left_out == 960 and len(rows) <= 48
    names = [(row["module"], row["call"]) for row in rows]
    assert (layers[501].module, layers[501].call + 1) in names and (layers[500].module, layers[500].call + 1) in names
    assert ("net.blocks.0", 1) in names and ("net.blocks.29", 8) in names
    assert layer_rows(long, everything=True)[1] == 0
    assert "--all shows them" in render_divergence(case(long), "table")


def test_every_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: False, raising=False)
    for output in ("table", "markdown"):
        page = render_divergence(case(FOUND), output)
        assert_golden(Path(__file__).parent / "golden" / f"diverge.{output}.txt", page)
    document = json.loads(render_divergence(case(FOUND), "json"))["divergence"]
    assert document["first"]["module"] == "net.2" and document["bad"] and len(document["layers"]) == 4
    assert "/somewhere" not in json.dumps(document)
    missing = NotInspected(entry=ENTRY, reason="no modules", bad=False)
    assert json.loads(render_divergence(case(missing), "json"))["divergence"]["reason"] == "no modules"
    assert "no modules" in render_divergence(case(missing), "table")
