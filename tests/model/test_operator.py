import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbench.errors import DeclarationError
from pairbench.model.case import EXACT, TF32_SPACING, TIERS, Tolerance, grid, with_tf32
from pairbench.model.operator import Cost, Operator, Variant


def plain(x: Any) -> Any:
    return x + x


def fast(x: Any) -> Any:
    return x * 2


def inputs(make: Any, rows: int) -> Mapping[str, Any]:
    return {"x": make.normal(rows)}


def declare(**changes: Any) -> Operator:
    given: dict[str, Any] = {
        "name": "double",
        "baseline": plain,
        "variants": {"fast": fast},
        "inputs": inputs,
        "cases": grid(rows=[1, 2]),
    }
    given.update(changes)
    return Operator(given.pop("name"), **given)


def refused(sentence: str) -> Any:
    return pytest.raises(DeclarationError, match=re.escape(sentence))


def test_the_smallest_declaration() -> None:
    double = declare()
    assert double.name == "double"
    assert [case.key for case in double.cases] == ["double[rows=1]", "double[rows=2]"]
    assert {case.tier for case in double.cases} == {"smoke"}
    assert double.tolerance == Tolerance()
    assert not (double.impostors or double.oracle or double.cost or double.constants or double.state or double.source)
    with pytest.raises(AttributeError):
        double.name = "other"  # type: ignore[misc]


def test_functions_become_variants_in_the_order_of_declaration_behind_the_baseline() -> None:
    wanted = Variant(fast, needs="cuda")
    variants: dict[str, Any] = {"z": fast, "a": wanted}
    double = declare(variants=variants, impostors={"half": plain})
    variants["later"] = fast
    assert double.implementations == {"baseline": Variant(plain), "z": Variant(fast), "a": wanted}
    assert list(double.implementations) == ["baseline", "z", "a"]
    assert double.impostors == {"half": Variant(plain)}


def test_each_tier_has_its_cases_and_each_dtype_its_tolerance() -> None:
    double = declare(cases={tier: [{"rows": size}] for size, tier in enumerate(TIERS)}, tolerance={"float16": EXACT})
    assert [case.tier for case in double.cases] == list(TIERS)
    assert (double.tolerance_for("float16"), double.tolerance_for("float32")) == (EXACT, Tolerance())
    assert declare(tolerance=EXACT).tolerance_for("bfloat16") == EXACT
    assert Cost(flops=2.0, bytes=8.0) == (2.0, 8.0)


def no_parameters() -> Mapping[str, Any]:
    return {}


def only_keywords(*, make: Any) -> Mapping[str, Any]:
    return {}


def axis_first(rows: int) -> Mapping[str, Any]:
    return {}


def with_dtype(make: Any, rows: int, dtype: str) -> Mapping[str, Any]:
    return {}


A_NAME = "expected a name of ASCII letters, digits and _ . -"
NO_CASES = "there are no cases, expected at least one: cases=grid(axis=[...])"
NO_PLACE = "inputs() takes no positional argument, expected inputs(make, axis, ...)"
TWICE = "is declared twice (tiers smoke and"
NO_VARIANTS: tuple[Any, ...] = ({}, None, [fast], fast)
EMPTY: tuple[Any, ...] = ([], {}, {"smoke": []})
REFUSED: list[tuple[dict[str, Any], str]] = [
    *(
        ({"owner": one}, f"owner is {one!r:.120}, expected a name on one line, such as '@team/kernels'")
        for one in (4, "a\nb", "x" * 101)
    ),
    *(({what: 4}, f"{what} is 4, expected a function") for what in ("inputs", "oracle", "cost")),
    ({"inputs": None}, "inputs is None, expected a function"),
    ({"baseline": "plain"}, "baseline is 'plain', expected a function or a Variant"),
    ({"variants": {"fast": None}}, "variant 'fast' is None, expected a function or a Variant"),
    ({"impostors": {"half": 0.5}}, "impostor 'half' is 0.5, expected a function or a Variant"),
    *(({"variants": one}, f"variants is {one!r}, expected at least one: {{'name': function}}") for one in NO_VARIANTS),
    ({"impostors": [fast]}, f"impostors is {[fast]!r}, expected {{'name': function}}"),
    *(
        ({f"{what}s": {name: fast}}, f"{what} {name!r}: {A_NAME}, other than 'baseline'")
        for what in ("variant", "impostor")
        for name in ("baseline", "", "two words", 4)
    ),
    *(({"cases": cases}, NO_CASES) for cases in EMPTY),
    ({"cases": {"huge": grid(rows=[1])}}, f"tier 'huge' is unknown, expected one of {', '.join(TIERS)}"),
    ({"cases": {"real": {"rows": 1}}}, "the real cases are {'rows': 1}, expected a list of dict(axis=value)"),
    *(
        ({"cases": cases}, f"the smoke cases are {cases!r}, expected a list of dict(axis=value)")
        for cases in (4, None, iter([{"rows": 1}]))
    ),
    ({"cases": ["rows"]}, "case 'rows' is no mapping, expected dict(axis=value, ...)"),
    (
        {"cases": {"smoke": grid(rows=[1, 2]), "real": grid(rows=[2])}},
        f"case double[rows=2] {TWICE} real); every case is one series",
    ),
    ({"cases": [{"rows": 4}, {"rows": "4"}]}, f"case double[rows=4] {TWICE} smoke)"),
    (
        {"cases": grid(rows=[1], columns=[4])},
        "case double[columns=4,rows=1] names the axis 'columns', which inputs(make, rows) does not take; rename the axis or add",
    ),
    ({"inputs": with_dtype}, "case double[rows=1] has no value for the axis 'dtype' of inputs(make, rows, dtype)"),
    ({"inputs": no_parameters}, NO_PLACE),
    ({"inputs": only_keywords}, NO_PLACE),
    (
        {"inputs": axis_first, "cases": [{"rows": 1}]},
        "the first parameter of inputs() is the axis 'rows', and it is given the maker of the tensors",
    ),
    *(
        (
            {"tolerance": {one: EXACT}},
            f"tolerance names {one!r}, expected the name of a dtype, as 'bfloat16', or 'tf32'",
        )
        for one in ("fp32", "torch.float32", "output", 32)
    ),
    *(
        ({"tolerance": one}, f"tolerance is {one!r}, expected Tolerance(rtol=..., atol=...) or one for each dtype")
        for one in (1e-3, {"float32": 1e-3}, "exact")
    ),
    *(
        ({what: "weight"}, f"{what} is 'weight', expected a list of input names: ['weight']")
        for what in ("constants", "state")
    ),
    ({"constants": ["cache"], "state": ["cache"]}, "input 'cache' is declared as constant and as state, expected one"),
    *(
        (change, f"{where!r} has prepare=, which takes the operator's constants, but there are none")
        for where, change in (
            ("baseline", {"baseline": Variant(fast, prepare=dict)}),
            ("fast", {"variants": {"fast": Variant(fast, prepare=dict)}}),
        )
    ),
    *(
        ({"cases": [{"rows": 1, "tf32": value}]}, f"axis 'tf32' has the value {value!r}, expected True or False")
        for value in (0, 1, "high", "tf32")
    ),
    *(
        ({"cases": [{"rows": value}]}, f"axis 'rows' has the list {value!r} as its value")
        for value in ([1024, 2048], ["float32"], [[1]], [])
    ),
]


@pytest.mark.parametrize(("changes", "sentence"), REFUSED, ids=range(len(REFUSED)))
def test_a_wrong_declaration_is_refused_in_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    with refused(f"operator 'double': {sentence}"):
        declare(**changes)


@pytest.mark.parametrize("name", ["", "2d", "two words", "a[b]", "a::b", "a,b", "é", None, 4])
def test_a_name_that_a_key_cannot_hold(name: object) -> None:
    with refused(f"operator {name!r}: {A_NAME}, starting with a letter"):
        declare(name=name)


@settings(max_examples=25)
@given(st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]*", fullmatch=True))
def test_every_other_name_is_fine(name: str) -> None:
    assert declare(name=name).cases[0].key == f"{name}[rows=1]"


@settings(max_examples=25)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=8))
def test_keys_are_unique_or_refused(rows: list[int]) -> None:
    if len(set(rows)) == len(rows):
        assert len({case.key for case in declare(cases=grid(rows=rows)).cases}) == len(rows)
    else:
        with refused("is declared twice"):
            declare(cases=grid(rows=rows))


def test_what_is_like_a_mistake_and_is_none() -> None:
    def with_default(make: Any, rows: int, *, dtype: str = "float32") -> Mapping[str, Any]:
        return {}

    def any_axis(make: Any, **axes: Any) -> Mapping[str, Any]:
        return {}

    assert len(declare(inputs=with_default).cases) == 2
    assert declare(inputs=any_axis, cases=grid(anything=[1])).cases[0].key == "double[anything=1]"
    assert declare(owner="@team/kernels").owner == "@team/kernels"
    assert declare(baseline=Variant(fast, prepare=dict), constants=["weight"]).constants == ("weight",)


@pytest.mark.parametrize(("what", "value"), [("function", None), ("prepare", 4), ("valid", 4)])
def test_what_must_be_a_function_of_a_variant(what: str, value: Any) -> None:
    with refused(f"Variant: {what} is {value}, expected a function"):
        Variant(**{"function": fast, what: value})


@pytest.mark.parametrize("need", ["gpu", "sm90", "sm_9", "sm_9000", "gpus", "gpus:two", "CUDA", "cuda "])
def test_a_need_that_nobody_can_meet(need: str) -> None:
    with refused(f"Variant: needs={need!r} is unknown, expected cpu, cuda, triton, sm_NN, gpus:N or package:NAME"):
        Variant(fast, needs=need)


def test_a_variant_is_of_a_kind_or_none() -> None:
    assert Variant(fast).kind == "" and Variant(fast, kind="library").kind == "library"
    with refused("Variant: kind='peer' is unknown, expected 'library', or none"):
        Variant(fast, kind="peer")


@pytest.mark.parametrize("need", ["package:", "package:>=1", "package:liger kernel", "package:liger_kernel>=new"])
def test_a_package_that_pip_would_not_take(need: str) -> None:
    with refused(f"Variant: needs={need!r} names no package, expected a name and versions as pip takes them"):
        Variant(fast, needs=need)


@pytest.mark.parametrize("need", ["cpu", "cuda", "triton", "sm_90", "sm_120", "gpus:2", "package:a>=1,<2"])
def test_needs_are_one_or_several(need: str) -> None:
    assert Variant(fast, needs=need).needs == (need,)
    assert Variant(fast, needs=["cuda", need]).needs == ("cuda", need)


@pytest.mark.parametrize("before", ["third", "second", "baseline", "none"])
def test_a_step_builds_on_a_variant_before_it(before: str) -> None:
    steps = {"first": fast, "second": Variant(fast, builds_on=before), "third": fast}
    with refused(f"variant 'second' builds on '{before}', expected the name of a variant before it"):
        declare(variants=steps)
    assert (
        declare(variants=steps | {"second": Variant(fast, builds_on="first")}).variants["second"].builds_on == "first"
    )


def test_float32_has_tf32s_tolerance_where_that_is_allowed() -> None:
    declared = {"float32": Tolerance(rtol=1e-6), "bfloat16": Tolerance(rtol=1e-2)}
    operator = declare(tolerance=declared)
    (case, _) = operator.cases
    plain, rounded = operator.at(case), operator.at(case, tf32=True)
    assert plain.tolerance_for("float32") == declared["float32"]
    assert rounded.tolerance_for("float32") == with_tf32(declared["float32"])
    assert rounded.tolerance_for("complex64") == with_tf32(Tolerance())
    for dtype in ("bfloat16", "float16", "float64", "complex128", "int64"):
        assert rounded.tolerance_for(dtype) == plain.tolerance_for(dtype) == declared.get(dtype, Tolerance())
    assert not operator.tf32 and not operator.at(case).tf32


def test_a_tolerance_for_tf32_is_taken_as_it_is_and_gradients_have_it_in_every_direction() -> None:
    operator = declare(tolerance={"float32": EXACT, "tf32": Tolerance(rtol=1e-1)})
    assert operator.at(operator.cases[0]).tolerance_for("float32") == EXACT
    found = operator.at(operator.cases[0], tf32=True).tolerance_for("float32")
    assert found == Tolerance(rtol=1e-1, spacing=TF32_SPACING)
    operator = declare(gradients=["x"], gradient_tolerance={"x": Tolerance(rtol=1e-6)})
    backward = operator.at(operator.cases[1], tf32=True)
    assert (backward.direction, backward.towards("fwd").tf32) == ("bwd", True)
    assert backward.tolerance_for("float32", "gradient of x") == with_tf32(Tolerance(rtol=1e-6))


def test_an_axis_tf32_needs_no_parameter() -> None:
    operator = declare(cases=grid(rows=[1], tf32=[True, False]))
    assert [case.key for case in operator.cases] == ["double[rows=1,tf32=True]", "double[rows=1,tf32=False]"]
    assert [case.tf32(otherwise=True) for case in operator.cases] == [True, False]
    assert [case.axes_for(inputs) for case in operator.cases] == [{"rows": 1}] * 2
    assert operator.cases[0].axes_for(lambda make, rows, tf32: {}) == {"rows": 1, "tf32": True}
    assert operator.cases[0].axes_for(lambda make, **axes: {}) == {"rows": 1, "tf32": True}
    plain = declare()
    assert [plain.cases[0].tf32(otherwise=wanted) for wanted in (True, False)] == [True, False]


def test_a_loops_functions_that_are_all_the_last_one_are_refused() -> None:
    made = {}
    for scale in (1, 2):
        made[f"by{scale}"] = lambda x: x * scale  # noqa: B023 (what is looked for)
    with pytest.raises(
        DeclarationError, match=r"variants 'by1' and 'by2' are the same function with the same values; .*n=n"
    ):
        declare(variants=made)
    with pytest.raises(DeclarationError, match="impostors 'by1' and 'by2' are the same function"):
        declare(impostors=made)
    with pytest.raises(DeclarationError, match="the same function"):
        declare(variants={name: Variant(function, needs="cpu") for name, function in made.items()})


@pytest.mark.parametrize(
    "make",
    [
        lambda n: lambda x: x * n,
        lambda n: lambda x, *, n=n: x * n,
        lambda n: lambda x, n=n: x * n,
        lambda n: functools.partial(fast, x=n),
        lambda n: Variant(fast),
        lambda n: fast,
    ],
)
def test_functions_with_values_of_their_own_are_variants(make: Callable[[Any], Any]) -> None:
    assert list(declare(variants={"v1": make(1), "v2": make(2)}).variants) == ["v1", "v2"]


def test_variants_that_are_prepared_differently_are_variants() -> None:
    def make(scale: int) -> Variant:
        return Variant(lambda x, weight: x * weight, prepare=lambda weight: {"weight": weight * scale})

    declare(variants={"a": make(1), "b": make(2)}, constants=["weight"])
    with pytest.raises(DeclarationError, match="the same function"):
        declare(variants={"a": make(1), "b": make(1)}, constants=["weight"])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: declare(variant={"a": fast}), r"Operator: there is no argument variant=; did you mean variants=\?"),
        (lambda: declare(toleranc=EXACT), r"did you mean tolerance=\?"),
        (lambda: declare(zzz=1), r"Operator: there is no argument zzz=; expected name, baseline, "),
        (lambda: Variant(fast, need="cpu"), r"Variant: there is no argument need=; did you mean needs=\?"),  # type: ignore[call-arg]
    ],
)
def test_an_unknown_argument_has_the_nearest_one_named(make: Callable[[], object], words: str) -> None:
    with pytest.raises(DeclarationError, match=words):
        make()
