"""From suites and a selection to a plan: what is taken, and what is skipped on which device for which reason."""

from dataclasses import replace
from typing import Any

import pytest

from pairbench.errors import SelectionError
from pairbench.model.case import Case, grid, make_case
from pairbench.model.environment import Device, Settings
from pairbench.model.plan import BrokenSuite, Entry, ImplementationDescription, OperatorDescription, Plan, PlannedCase
from pairbench.plan import Equipment, equipped, make_plan, narrow, one_of_each, parse_selection, same_model, tiers_for
from tests.builders import described

CPU = Device(selector="cpu", kind="cpu", name="a CPU")
H200 = Device(selector="cuda:0", kind="cuda", name="NVIDIA H200", uuid="GPU-0", capability=(9, 0))
A100 = Device(selector="cuda:1", kind="cuda", name="NVIDIA A100", uuid="GPU-1", capability=(8, 0))


def implementation(name: str, *needs: str) -> ImplementationDescription:
    return ImplementationDescription(name=name, needs=needs, hash=name)


def operator(suite: str, name: str, *variants: ImplementationDescription, cases: Any = None) -> OperatorDescription:
    points = cases or {
        "edge": grid(rows=[1]),
        "smoke": grid(rows=[4, 8]),
        "real": grid(rows=[64]),
        "headline": grid(rows=[4096]),
    }
    return described(
        suite=suite,
        name=name,
        implementations=(implementation("baseline"), *(variants or (implementation("fast"),))),
        cases=tuple(make_case(name, point, tier) for tier, tier_points in points.items() for point in tier_points),
    )


CONV, NORM, NORM2 = (
    operator("conv.py", "conv"),
    operator("norms/rms.py", "rms_norm"),
    operator("norms/rms.py", "layer_norm"),
)
ALL = [CONV, NORM, NORM2]


def plan(*select: str, operators: Any = ALL, device: Device = CPU, broken: Any = (), **more: Any) -> Plan:
    settings = more.pop("settings", Settings())
    equipment = Equipment(device=device, gpus=more.pop("gpus", 1), triton=more.pop("triton", True))
    selections = narrow(parse_selection(text) for text in select)
    return make_plan(operators, broken, equipment, settings, selections, **more)


def keys(found: Plan) -> list[str]:
    return [case.case.key for case in found.cases]


def smoke(*names: str) -> list[str]:
    return [f"{name}[rows={rows}]" for name in names for rows in (4, 8)]


@pytest.mark.parametrize(
    ("select", "taken"),
    [
        ([], smoke("conv", "rms_norm", "layer_norm")),
        (["conv.py"], smoke("conv")),
        (["norms/rms.py"], smoke("rms_norm", "layer_norm")),
        (["norms/rms.py::rms_norm"], smoke("rms_norm")),
        (["norms/rms.py::*norm"], smoke("rms_norm", "layer_norm")),
        (["conv"], smoke("conv")),
        (["conv[rows=*]"], smoke("conv")),
        (["*[rows=8]"], ["conv[rows=8]", "rms_norm[rows=8]", "layer_norm[rows=8]"]),
        (["conv[rows=4096]"], ["conv[rows=4096]"]),
        (["conv[rows=1]", "rms_norm"], ["conv[rows=1]", *smoke("rms_norm")]),
        (["conv.py::conv[rows=64]"], ["conv[rows=64]"]),
        (["conv", "conv[rows=64]"], [*smoke("conv"), "conv[rows=64]"]),
        (["norms/rms.py", "layer_norm"], smoke("layer_norm")),
        (["norms/rms.py", "*[rows=8]"], ["rms_norm[rows=8]", "layer_norm[rows=8]"]),
        (["conv[rows=64]", "conv.py"], ["conv[rows=64]"]),
        (["conv.py", "norms/rms.py", "*[rows=8]"], ["conv[rows=8]", "rms_norm[rows=8]", "layer_norm[rows=8]"]),
        (["norms/rms.py", "layer_norm", "conv.py::conv"], smoke("conv", "layer_norm")),
    ],
    ids=lambda value: " ".join(value) if len(str(value)) < 40 else "",
)
def test_selections(select: list[str], taken: list[str]) -> None:
    assert keys(plan(*select)) == taken


def test_a_name_that_is_not_in_the_named_files_is_refused_with_them() -> None:
    with pytest.raises(SelectionError, match=r"'conv' selects nothing of norms/rms.py; operators are"):
        plan("norms/rms.py", "conv")


def test_a_glob_takes_only_the_tiers_asked_for_and_a_name_its_own_case() -> None:
    assert keys(plan("conv[rows=*]", settings=Settings(tiers=("real",)))) == ["conv[rows=64]"]
    # `conv[rows=4]` must not match a case whose next letter happens to be one of `rows=4`, nor one of another suite.
    others = [operator("x.py", "convr", cases={"smoke": [{}]}), CONV, replace(CONV, suite="other.py")]
    found = plan("conv.py::conv[rows=4]", operators=others)
    assert [(case.operator.suite, case.case.key) for case in found.cases] == [("conv.py", "conv[rows=4]")]
    assert keys(plan("conv[rows=4]", operators=others[:2])) == ["conv[rows=4]"]


@pytest.mark.parametrize("text", ["rows", "conv[rows=5]", "conv.py::rms_norm", "missing.py", "CONV"])
def test_what_selects_nothing_is_refused_with_what_there_is(text: str) -> None:
    with pytest.raises(SelectionError, match=r"selects nothing; operators are: conv, layer_norm, rms_norm") as caught:
        plan("conv.py::conv", text)
    assert repr(text) in str(caught.value)


def test_a_selection_of_another_tier_says_so() -> None:
    with pytest.raises(SelectionError, match="no selected case is of the tier headline; --tier takes smoke"):
        plan(operators=[operator("a.py", "a", cases={"smoke": grid(rows=[1])})], settings=Settings(tiers=("headline",)))


def test_a_selection_of_a_broken_suite_is_no_error() -> None:
    broken = BrokenSuite(suite="bad.py", reason="no")
    found = plan("bad.py", "conv.py::conv", broken=[broken])
    assert found.broken == (broken,) and keys(found) == smoke("conv")
    assert plan("bad.py", "conv", broken=[broken]).cases == ()
    assert plan("bad.py", operators=[], broken=[broken]).cases == ()


def test_a_selection_reads_back_records() -> None:
    """`show --select` has only names."""
    assert parse_selection("conv").takes_name("conv.py", "conv", "conv[rows=4]")
    assert parse_selection("conv[rows=4]").takes_name("conv.py", "conv", "conv[rows=4]")
    assert parse_selection("conv.py").takes_name("conv.py", None, None)
    assert not parse_selection("conv").takes_name("conv.py", None, None)
    assert not parse_selection("norms/").takes_name("conv.py", "conv", None)


@pytest.mark.parametrize(
    ("device", "edge", "tiers"),
    [
        (CPU, False, ("smoke",)),
        (CPU, True, ("edge", "smoke")),
        (H200, False, ("smoke", "real", "headline")),
        (H200, True, ("edge", "smoke", "real", "headline")),
    ],
)
def test_default_tiers(device: Device, edge: bool, tiers: tuple[str, ...]) -> None:
    assert tiers_for(device, Settings(), edge=edge) == tiers
    assert tiers_for(device, Settings(tiers=("real",)), edge=edge) == ("real",)
    sizes = {"edge": (1,), "smoke": (4, 8), "real": (64,), "headline": (4096,)}
    taken = [f"conv[rows={rows}]" for tier in tiers for rows in sizes[tier]]
    assert keys(plan(device=device, edge=edge, operators=[CONV])) == taken


def skipped(needs: str, device: Device, **more: Any) -> str | None:
    (case,) = plan(
        "op[rows=4]", operators=[operator("a.py", "op", implementation("v", needs))], device=device, **more
    ).cases
    assert set(case.entries) == {Entry(implementation=name, mode="eager") for name in ("baseline", "v")}
    assert Entry(implementation="baseline", mode="eager") not in {**case.skipped, **case.untimed}
    return case.skipped.get(Entry(implementation="v", mode="eager"))


@pytest.mark.parametrize(
    ("needs", "device", "gpus", "reason"),
    [
        ("cuda", CPU, 0, "needs a CUDA device; this is cpu"),
        ("cuda", H200, 1, None),
        ("cpu", H200, 1, "needs a CPU; this is cuda:0"),
        ("cpu", CPU, 0, None),
        ("sm_90", H200, 1, None),
        ("sm_90", A100, 1, "needs sm_90 or newer; this is sm_80"),
        ("sm_100", H200, 1, "needs sm_100 or newer; this is sm_90"),
        ("sm_90", CPU, 0, "needs sm_90 or newer; this is cpu"),
        ("gpus:2", H200, 1, "needs 2 GPUs; here are 1"),
        ("gpus:2", H200, 2, None),
        ("gpus:2", CPU, 8, "needs 2 GPUs; here are 0"),
        ("triton", H200, 1, None),
    ],
)
def test_needs(needs: str, device: Device, gpus: int, reason: str | None) -> None:
    assert skipped(needs, device, gpus=gpus) == reason


@pytest.mark.parametrize("device", [CPU, H200])
def test_without_triton_its_variants_are_skipped(device: Device) -> None:
    assert skipped("triton", device, triton=False) == "needs Triton, which is not installed"


@pytest.mark.parametrize(
    ("need", "installed", "reason"),
    [
        ("package:liger_kernel", {"liger_kernel": "0.8.1"}, None),
        ("package:liger_kernel>=0.8", {"liger_kernel": "0.8.1.dev3"}, None),
        ("package:liger_kernel>=0.8", {"liger_kernel": "0.7"}, "needs liger_kernel>=0.8; installed is 0.7"),
        ("package:liger_kernel>=0.8", {}, "needs liger_kernel>=0.8, which is not installed"),
    ],
)
def test_a_package_and_its_version(need: str, installed: dict[str, str], reason: str | None) -> None:
    peer = ImplementationDescription(name="peer", needs=(need,), hash="peer", packages=installed)
    (case,) = plan("op[rows=4]", operators=[operator("a.py", "op", peer)]).cases
    assert case.skipped.get(Entry(implementation="peer", mode="eager")) == reason


def test_triton_on_a_cpu_is_verified_and_not_timed() -> None:
    kernel = operator("a.py", "op", implementation("kernel", "triton"), implementation("plain"))
    (on_cpu,) = plan("op[rows=4]", operators=[kernel]).cases
    assert set(on_cpu.untimed) == {Entry(implementation="kernel", mode="eager")}
    assert on_cpu.untimed.popitem()[1].startswith("Triton's interpreter verified it")
    assert not on_cpu.skipped
    (on_gpu,) = plan("op[rows=4]", operators=[kernel], device=H200).cases
    assert not on_gpu.untimed and not on_gpu.skipped
    needs_both = operator("a.py", "op", implementation("kernel", "cuda", "triton"))
    (found,) = plan("op[rows=4]", operators=[needs_both]).cases
    assert list(found.skipped.values()) == ["needs a CUDA device; this is cpu"] and not found.untimed


FORMS = operator("a.py", "forms", *(implementation(name) for name in ("triton", "gluon", "gluon_by_four")))


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ((), "baseline triton gluon gluon_by_four"),
        (("gluon",), "baseline gluon"),
        (("gluon*",), "baseline gluon gluon_by_four"),
        (("gluon_by_four", "triton"), "baseline triton gluon_by_four"),
        (("baseline",), "baseline"),
    ],
)
def test_implementations_are_taken_beside_the_baseline(wanted: tuple[str, ...], names: str) -> None:
    (found,) = plan("forms[rows=4]", operators=[FORMS], implementations=wanted).cases
    assert [entry.implementation for entry in found.entries] == names.split()
    assert found.operator == FORMS


def test_operators_without_the_implementation_are_left_out() -> None:
    assert keys(plan(operators=[CONV, FORMS], implementations=("triton",))) == ["forms[rows=4]", "forms[rows=8]"]


@pytest.mark.parametrize("select", [(), ("conv",)])
def test_an_implementation_that_nothing_selected_has_is_an_error(select: tuple[str, ...]) -> None:
    with pytest.raises(SelectionError) as caught:
        plan(*select, operators=[CONV, NORM], implementations=("fast", "tritn"))
    assert str(caught.value) == "--implementation 'tritn' is none of the selected operators', which have baseline, fast"
    suite = BrokenSuite(suite="b.py", reason="")  # it may have been there
    assert keys(plan(operators=[CONV], broken=[suite], implementations=("tritn",))) == []


def test_modes_multiply_entries() -> None:
    (found,) = plan("conv[rows=4]", device=H200, settings=Settings(modes=("eager", "compile", "graph"))).cases
    assert [str(entry) for entry in found.entries] == [
        f"{name} ({mode})" for mode in ("eager", "compile", "graph") for name in ("baseline", "fast")
    ]
    assert not found.skipped


def test_modes_on_a_cpu() -> None:
    kernel = operator("a.py", "op", implementation("kernel", "triton"))
    (found,) = plan("op[rows=4]", operators=[kernel], settings=Settings(modes=("eager", "compile", "graph"))).cases
    assert {str(entry): reason for entry, reason in found.skipped.items()} == {
        "kernel (compile)": "torch.compile cannot go through Triton's interpreter",
        "baseline (graph)": "mode graph needs a CUDA device",
        "kernel (graph)": "mode graph needs a CUDA device",
    }
    assert [str(entry) for entry in found.untimed] == ["kernel (eager)"]


GPUS = tuple(
    Device(selector=f"cuda:{index}", kind="cuda", name=name, uuid=f"GPU-{index}", capability=(9, 0))
    for index, name in enumerate(["NVIDIA H200", "NVIDIA A100", "NVIDIA H200", "NVIDIA H200"])
)


def test_gpus_of_one_model_come_in_order_from_the_own_one_around() -> None:
    devices = (*GPUS, CPU)
    assert [one.selector for one in same_model(GPUS[2], devices)] == ["cuda:2", "cuda:3", "cuda:0"]
    assert [one.selector for one in same_model(GPUS[1], devices)] == ["cuda:1"]
    assert same_model(CPU, devices) == ()
    shared = operator("a.py", "op", implementation("two", "gpus:2"))
    assert equipped(CPU, devices, plan("op[rows=4]", operators=[shared]).cases) == CPU


@pytest.mark.parametrize(
    ("needs", "beside"),
    [
        ([], []),
        (["cuda"], []),
        (["gpus:2"], ["cuda:3"]),
        (["gpus:3", "gpus:2"], ["cuda:3", "cuda:0"]),
        (["gpus:4", "gpus:2"], ["cuda:3"]),  # four there are not: skipped, and none is taken for it
    ],
)
def test_a_device_has_beside_it_what_its_plan_needs_and_no_more(needs: list[str], beside: list[str]) -> None:
    shared = operator("a.py", "op", *(implementation(f"v{place}", need) for place, need in enumerate(needs)))
    gpu, devices = GPUS[2], (*GPUS, CPU)
    found = plan("op[rows=4]", operators=[shared], device=gpu, gpus=len(same_model(gpu, devices)))
    got = equipped(gpu, devices, found.cases)
    assert [one.selector for one in got.beside] == beside
    assert all(one.beside == () for one in got.beside)
    assert equipped(got, devices, found.cases) == got
    assert replace(got, beside=()) == gpu


def cases_of(name: str) -> tuple[PlannedCase, ...]:
    cases: tuple[Case, ...] = tuple(
        make_case(name, {"n": n}, tier)
        for tier, sizes in (("smoke", (1, 2)), ("headline", (7,)), ("real", (3, 4)))
        for n in sizes
    )
    operator = described(name, cases=cases)
    return tuple(PlannedCase(operator=operator, case=case, entries=()) for case in cases)


PLANNED = (*cases_of("silu"), *cases_of("silu_and_mul"))


@pytest.mark.parametrize(
    ("select", "device", "taken"),
    [
        ([], CPU, ["silu[n=1]", "silu_and_mul[n=1]"]),
        ([], H200, ["silu[n=3]", "silu_and_mul[n=3]"]),
        (["ops.py"], H200, ["silu[n=3]", "silu_and_mul[n=3]"]),
        (["silu[n=2]"], H200, ["silu[n=2]", "silu_and_mul[n=3]"]),
        (["ops.py::silu[n=2]", "ops.py::silu[n=7]"], H200, ["silu[n=2]", "silu[n=7]", "silu_and_mul[n=3]"]),
        (["*[n=4]"], H200, ["silu[n=4]", "silu_and_mul[n=4]"]),
        (["ops.py::silu*", "*[n=7]"], H200, ["silu[n=7]", "silu_and_mul[n=7]"]),
    ],
)
def test_cases_that_are_named_are_taken_and_of_other_operators_one(
    select: list[str], device: Device, taken: list[str]
) -> None:
    found = one_of_each(PLANNED, [parse_selection(text) for text in select], device)
    assert [one.case.key for one in found] == taken
    headline = [one for one in PLANNED if one.case.tier == "headline"]  # the first of the tier that was asked for
    assert [one.case.key for one in one_of_each(headline, [], device)] == ["silu[n=7]", "silu_and_mul[n=7]"]
