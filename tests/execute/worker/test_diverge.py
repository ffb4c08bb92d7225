from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pairbench.execute.protocol import DivergeCase, Ended, Heartbeat
from pairbench.execute.worker import diverge as module
from pairbench.execute.worker.diverge import diverge, error_of, gap_of, incomparable, is_worse, mark_contained
from pairbench.model.breakdown import Divergence, NotInspected
from pairbench.model.case import Tolerance
from pairbench.model.operator import Operator
from pairbench.suite.modules import load_suite
from tests.execute.made import CONFIG, declare, job_of

CPU = torch.device("cpu")


def answer(suites: Path, heartbeat: Heartbeat, variant: str, *, operator: str = "network", case: int = 0) -> Any:
    path = suites / "modules.py"
    declared: Operator = load_suite(path)[operator]
    job = replace(job_of(DivergeCase, declared, variant), case=declared.cases[case])
    (found,) = diverge(job, declared, CONFIG, heartbeat)
    return found


def divergence(suites: Path, heartbeat: Heartbeat, variant: str, **more: Any) -> Divergence:
    found = answer(suites, heartbeat, variant, **more)
    assert isinstance(found, Divergence)
    return found


def test_the_module_that_makes_the_error_is_named_but_rounding_alone_is_not_bad(
    suites: Path, heartbeat: Heartbeat
) -> None:
    found = divergence(suites, heartbeat, "wrong_ffn")
    assert found.first and (found.first.module, found.first.class_name) == ("net.blocks.2.ffn.2", "ShiftedLinear")
    assert found.first.gap and found.first.gap.max_abs == pytest.approx(0.5) and found.first.gap.beyond == 1
    assert found.inputs and found.inputs.within and found.inputs.max_abs == 0
    assert found.first_worse is found.first and found.bad
    assert found.first.baseline_oracle and found.first.baseline_oracle < 1e-6
    assert found.first.variant_oracle and found.first.variant_oracle > 0.1
    before = found.layers[: found.layers.index(found.first)]
    assert {layer.gap.max_abs for layer in before if layer.gap} == {0}
    assert found.output_mismatch and found.layers[-1].module == "net" and found.layers[-1].gap
    assert not found.layers[-1].gap.within
    rounded = replace(found, layers=(replace(found.first, worse=False),), output_mismatch=None)
    assert rounded.first is not None and not rounded.bad
    assert replace(rounded, oracle_missing="none").bad


def test_an_error_in_no_module_of_its_own_comes_in_from_outside_or_is_in_the_output_alone(
    suites: Path, heartbeat: Heartbeat
) -> None:
    found = divergence(suites, heartbeat, "wrong_between")
    # The norm undoes the factor; what takes the sum sees it.
    assert found.first and found.first.module == "net.blocks.1.ffn.0"
    assert found.inputs and not found.inputs.within
    found = divergence(suites, heartbeat, "wrong_at_the_end")
    assert found.first is None and found.output_mismatch and found.bad and found.inputs is None


def test_nothing_is_off_where_nothing_is_wrong(suites: Path, heartbeat: Heartbeat) -> None:
    found = divergence(suites, heartbeat, "same")
    assert found.first is None and not found.bad and len(found.layers) == 37
    assert found.only_variant == tuple(f"net.blocks.{place}.fused" for place in range(4)) and not found.only_baseline
    # The added module of each block is in no one's call.
    assert found.uncalled == ()


def test_more_precision_is_within_and_nearer_to_float64(suites: Path, heartbeat: Heartbeat) -> None:
    found = divergence(suites, heartbeat, "casts")
    norm = next(layer for layer in found.layers if layer.module == "net.blocks.0.norm")
    assert not found.bad and norm.gap and 0 < norm.gap.max_abs < 1e-6
    assert norm.variant_oracle is not None and norm.baseline_oracle is not None
    assert norm.variant_oracle < norm.baseline_oracle


def test_what_calls_no_module_is_listed(suites: Path, heartbeat: Heartbeat) -> None:
    found = divergence(suites, heartbeat, "without_modules")
    assert found.layers == () and ("net", 1, 0) in found.uncalled and len(found.uncalled) == 37


def test_an_operator_without_modules_says_what_is_missing_and_what_raises_is_an_end(
    suites: Path, heartbeat: Heartbeat
) -> None:
    found = answer(suites, heartbeat, "by_hand", operator="plain")
    assert isinstance(found, NotInspected) and not found.bad
    assert "the baseline and by_hand get no torch.nn.Module" in found.reason
    assert isinstance(answer(suites, heartbeat, "raises"), Ended)


def test_a_stretch_at_a_time_gives_the_same(
    suites: Path, heartbeat: Heartbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = divergence(suites, heartbeat, "wrong_ffn")
    lengths: list[int] = []
    plain = module.stretches

    def counted(*args: Any, **kwargs: Any) -> Any:
        for stretch in plain(*args, **kwargs):
            lengths.append(len(stretch))
            yield stretch

    monkeypatch.setattr(module, "stretches", counted)
    monkeypatch.setattr(module._Lockstep, "_room", lambda self: 20_000)
    assert divergence(suites, heartbeat, "wrong_ffn") == whole
    assert len(lengths) > 3 and sum(lengths) == 37


def test_without_an_oracle_the_rest_is_said(
    suites: Path, heartbeat: Heartbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(_: Any) -> Any:
        raise TypeError("no float64 here")

    monkeypatch.setattr(module, "upcast_inputs", cannot)
    found = divergence(suites, heartbeat, "wrong_ffn")
    assert found.oracle_missing and "no float64 here" in found.oracle_missing
    assert found.first and found.first.variant_oracle is None and found.bad


def test_what_is_off_inside_of_what_is_not_is_contained(suites: Path, heartbeat: Heartbeat) -> None:
    layers = divergence(suites, heartbeat, "wrong_ffn").layers
    assert not any(layer.contained for layer in layers)
    # As if block 2 put it right again.
    fine = next(layer.gap for layer in layers if layer.gap and layer.gap.within)
    righted = [replace(layer, gap=fine) if layer.module == "net.blocks.2.ffn" else layer for layer in layers]
    assert [layer.module for layer in mark_contained(righted) if layer.contained] == ["net.blocks.2.ffn.2"]
    # What is around it in another block, or only begins alike, is not around it.
    assert mark_contained([layers[26], replace(layers[26], module="net.blocks.20", gap=fine)])[0].contained is False


# -- gaps -------------------------------------------------------------------------------------------------------------


ONES, EXACT = torch.ones(4), torch.linspace(1, 2, 100)
ROUNDED = EXACT.to(torch.bfloat16)
OF_THE_WHOLE = {"float32": Tolerance(atol=10.0, rel_l2=0.1)}
BY_DTYPE = {"float32": Tolerance(rtol=1e-6, atol=0), "bfloat16": Tolerance(rtol=1e-2, atol=0)}


@pytest.mark.parametrize(
    ("tolerance", "mine", "theirs", "within"),
    [
        # A lower precision has its own tolerance.
        (BY_DTYPE, ROUNDED, EXACT, True),
        (BY_DTYPE, ROUNDED.float(), EXACT, False),
        # A limit for the whole holds too.
        (OF_THE_WHOLE, 1.05 * ONES, ONES, True),
        (OF_THE_WHOLE, 1.2 * ONES, ONES, False),
        # NaN is beyond every tolerance.
        ({"float32": Tolerance(atol=10.0)}, float("nan") * ONES, ONES, False),
    ],
)
def test_a_gap_is_within_the_tolerance(
    tolerance: dict[str, Tolerance], mine: torch.Tensor, theirs: torch.Tensor, within: bool
) -> None:
    assert gap_of(declare(tolerance=tolerance), [("", mine)], [("", theirs)]).within is within


def test_a_gap_is_of_all_tensors_together_and_of_comparable_ones() -> None:
    declared = declare(tolerance={"float32": Tolerance(rtol=0, atol=0.5)})
    theirs = [("a", torch.tensor([3.0, 4.0])), ("b", torch.zeros(2))]
    mine = [("a", torch.tensor([3.0, 4.0])), ("b", torch.tensor([0.0, 1.0]))]
    gap = gap_of(declared, mine, theirs)
    assert (gap.max_abs, gap.rel_l2, gap.beyond, gap.within) == (1.0, 0.2, 0.25, False)
    one, two = [("", torch.zeros(2))], [("", torch.zeros(3))]
    assert incomparable(one, two) == "shape [2], the baseline's is [3]"
    assert incomparable(one, [("a", torch.zeros(2)), ("b", torch.zeros(2))]) == "1 tensors, the baseline's has 2"
    assert incomparable([], []) == "no tensor"
    assert incomparable(one, one) is None and error_of(one, two) is None


def test_worse_is_more_than_twice_as_far_and_half_a_spacing() -> None:
    of = [("", torch.zeros(1, dtype=torch.bfloat16))]
    spacing = torch.finfo(torch.bfloat16).eps
    plain = declare(tolerance=Tolerance())
    assert not is_worse(plain, 0.01, 0.02, of) and is_worse(plain, 0.01, 0.02 + spacing, of)
    assert not is_worse(plain, 0.0, spacing / 3, of)
    assert not is_worse(plain, None, 1.0, of)
    single = [("", torch.zeros(1))]
    assert is_worse(plain, 0.0, 0.001, single) and not is_worse(plain.at(plain.cases[0], tf32=True), 0.0, 0.001, single)
