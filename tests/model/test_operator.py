"""An operator is complete or refused at construction, with a sentence that names what is wrong."""

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbench.errors import DeclarationError
from pairbench.model.case import TIERS, grid
from pairbench.model.operator import Cost, Operator, Variant
from pairbench.model.tolerance import EXACT, TF32_SPACING, Tolerance, with_tf32


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


# What is complete


def test_the_smallest_declaration() -> None:
    double = declare()
    assert double.name == "double"
    assert [case.key for case in double.cases] == ["double[rows=1]", "double[rows=2]"]
    assert {case.tier for case in double.cases} == {"smoke"}
    assert double.tolerance == Tolerance()
    assert (double.impostors, double.oracle, double.cost, double.constants, double.state, double.source) == (
        {},
        None,
        None,
        (),
        (),
        "",
    )


def test_functions_become_variants() -> None:
    wanted = Variant(fast, needs="cuda")
    double = declare(variants={"fast": fast, "kernel": wanted}, impostors={"half": plain})
    assert double.baseline == Variant(plain)
    assert double.variants == {"fast": Variant(fast), "kernel": wanted}
    assert double.impostors == {"half": Variant(plain)}


def test_the_baseline_comes_first_and_the_variants_as_declared() -> None:
    assert list(declare(variants={"z": fast, "a": fast}).implementations) == ["baseline", "z", "a"]


def test_cases_by_tier() -> None:
    double = declare(cases={tier: [{"rows": size}] for size, tier in enumerate(TIERS)})
    assert [case.tier for case in double.cases] == list(TIERS)


def test_it_is_frozen() -> None:
    with pytest.raises(AttributeError):
        declare().name = "other"  # type: ignore[misc]


def test_the_declaration_does_not_follow_the_authors_dictionaries() -> None:
    variants = {"fast": fast}
    double = declare(variants=variants)
    variants["later"] = fast
    assert list(double.variants) == ["fast"]


def test_one_tolerance_is_for_every_dtype() -> None:
    assert declare(tolerance=EXACT).tolerance_for("bfloat16") == EXACT


def test_a_dtype_without_its_own_tolerance_has_the_default() -> None:
    double = declare(tolerance={"float16": EXACT})
    assert double.tolerance_for("float16") == EXACT
    assert double.tolerance_for("float32") == Tolerance()


def test_cost_is_two_numbers() -> None:
    assert Cost(flops=2.0, bytes=8.0) == (2.0, 8.0)


# The name


@pytest.mark.parametrize("name", ["", "2d", "two words", "a[b]", "a::b", "a,b", "é", None, 4])
def test_a_name_that_a_key_cannot_hold(name: object) -> None:
    with refused(f"operator {name!r}: expected a name of letters, digits and _ . -, starting with a letter"):
        declare(name=name)


@given(st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]*", fullmatch=True))
def test_every_other_name_is_fine(name: str) -> None:
    assert declare(name=name).cases[0].key == f"{name}[rows=1]"


@pytest.mark.parametrize("owner", [4, "two\nlines", "x" * 101])
def test_an_owner_is_a_name_on_one_line(owner: object) -> None:
    with refused(f"operator 'double': owner is {owner!r:.120}, expected a name on one line, such as '@team/kernels'"):
        declare(owner=owner)
    assert declare(owner="@team/kernels").owner == "@team/kernels"


# The functions


@pytest.mark.parametrize("what", ["inputs", "oracle", "cost"])
def test_what_must_be_a_function(what: str) -> None:
    with refused(f"operator 'double': {what} is 4, expected a function"):
        declare(**{what: 4})


def test_inputs_cannot_be_left_out() -> None:
    with refused("operator 'double': inputs is None, expected a function"):
        declare(inputs=None)


def test_a_baseline_that_is_no_function() -> None:
    with refused("operator 'double': baseline is 'plain', expected a function or a Variant"):
        declare(baseline="plain")


def test_a_variant_that_is_no_function() -> None:
    with refused("operator 'double': variant 'fast' is None, expected a function or a Variant"):
        declare(variants={"fast": None})


def test_an_impostor_that_is_no_function() -> None:
    with refused("operator 'double': impostor 'half' is 0.5, expected a function or a Variant"):
        declare(impostors={"half": 0.5})


@pytest.mark.parametrize("variants", [{}, None, [fast], fast])
def test_no_variants(variants: object) -> None:
    with refused(f"operator 'double': variants is {variants!r}, expected at least one: {{'name': function}}"):
        declare(variants=variants)


def test_impostors_that_are_no_mapping() -> None:
    with refused(f"operator 'double': impostors is {[fast]!r}, expected {{'name': function}}"):
        declare(impostors=[fast])


@pytest.mark.parametrize("what", ["variant", "impostor"])
@pytest.mark.parametrize("name", ["baseline", "", "two words", 4])
def test_the_name_of_an_implementation(what: str, name: object) -> None:
    with refused(
        f"operator 'double': {what} {name!r}: expected a name of letters, digits and _ . -, other than 'baseline'"
    ):
        declare(**{f"{what}s": {name: fast}})


# The cases


@pytest.mark.parametrize("cases", [[], {}, {"smoke": []}])
def test_no_cases(cases: object) -> None:
    with refused("operator 'double': there are no cases, expected at least one: cases=grid(axis=[...])"):
        declare(cases=cases)


def test_an_unknown_tier() -> None:
    with refused(f"operator 'double': tier 'huge' is unknown, expected one of {', '.join(TIERS)}"):
        declare(cases={"huge": grid(rows=[1])})


def test_a_lone_point_in_a_tier() -> None:
    with refused("operator 'double': the real cases are {'rows': 1}, expected a list of dict(axis=value)"):
        declare(cases={"real": {"rows": 1}})


@pytest.mark.parametrize("cases", [4, None, iter([{"rows": 1}])])
def test_cases_that_are_no_list(cases: object) -> None:
    with refused(f"operator 'double': the smoke cases are {cases!r}, expected a list of dict(axis=value)"):
        declare(cases=cases)


def test_a_point_written_as_a_keyword_list() -> None:
    with refused("operator 'double': case 'rows' is no mapping, expected dict(axis=value, ...)"):
        declare(cases=["rows"])


def test_one_case_in_two_tiers() -> None:
    with refused(
        "operator 'double': case double[rows=2] is declared twice (tiers smoke and real); every case is one series"
    ):
        declare(cases={"smoke": grid(rows=[1, 2]), "real": grid(rows=[2])})


def test_two_values_that_are_written_alike_are_one_case() -> None:
    with refused("operator 'double': case double[rows=4] is declared twice (tiers smoke and smoke)"):
        declare(cases=[{"rows": 4}, {"rows": "4"}])


@given(st.lists(st.integers(0, 20), min_size=1, max_size=8))
def test_keys_are_unique_or_refused(rows: list[int]) -> None:
    if len(set(rows)) == len(rows):
        assert len({case.key for case in declare(cases=grid(rows=rows)).cases}) == len(rows)
    else:
        with refused("is declared twice"):
            declare(cases=grid(rows=rows))


def test_an_axis_that_inputs_does_not_take() -> None:
    with refused(
        "operator 'double': case double[columns=4,rows=1] names the axis 'columns', which inputs(make, rows) does not take; "
        "rename the axis or add the parameter"
    ):
        declare(cases=grid(rows=[1], columns=[4]))


def test_an_axis_without_a_value() -> None:
    def inputs(make: Any, rows: int, dtype: str) -> Mapping[str, Any]:
        return {}

    with refused(
        "operator 'double': case double[rows=1] has no value for the axis 'dtype' of inputs(make, rows, dtype)"
    ):
        declare(inputs=inputs)


def test_a_parameter_with_a_default_need_not_be_an_axis() -> None:
    def inputs(make: Any, rows: int, *, dtype: str = "float32") -> Mapping[str, Any]:
        return {}

    assert len(declare(inputs=inputs).cases) == 2


def test_inputs_may_take_any_axis() -> None:
    def inputs(make: Any, **axes: Any) -> Mapping[str, Any]:
        return {}

    assert declare(inputs=inputs, cases=grid(anything=[1])).cases[0].key == "double[anything=1]"


def no_parameters() -> Mapping[str, Any]:
    return {}


def only_keywords(*, make: Any) -> Mapping[str, Any]:
    return {}


@pytest.mark.parametrize("function", [no_parameters, only_keywords])
def test_inputs_without_a_place_for_make(function: Callable[..., Any]) -> None:
    with refused("operator 'double': inputs() takes no positional argument, expected inputs(make, axis, ...)"):
        declare(inputs=function)


def axis_first(rows: int) -> Mapping[str, Any]:
    return {}


def test_inputs_whose_first_parameter_is_an_axis() -> None:
    with refused(
        "operator 'double': the first parameter of inputs() is the axis 'rows', and it is given the maker of the tensors"
    ):
        declare(inputs=axis_first, cases=[{"rows": 1}])


# Tolerance, constants, state


@pytest.mark.parametrize("tolerance", [1e-3, {"float32": 1e-3}, "exact"])
def test_a_tolerance_that_is_none(tolerance: object) -> None:
    with refused(
        f"operator 'double': tolerance is {tolerance!r}, expected Tolerance(rtol=..., atol=...) or one for each dtype"
    ):
        declare(tolerance=tolerance)


@pytest.mark.parametrize("what", ["constants", "state"])
def test_a_lone_name_is_no_list(what: str) -> None:
    with refused(f"operator 'double': {what} is 'weight', expected a list of input names: ['weight']"):
        declare(**{what: "weight"})


def test_an_input_is_constant_or_state() -> None:
    with refused("operator 'double': input 'cache' is declared as constant and as state, expected one"):
        declare(constants=["cache"], state=["cache"])


@pytest.mark.parametrize("where", ["baseline", "fast"])
def test_prepare_without_constants(where: str) -> None:
    prepared = Variant(fast, prepare=dict)
    change: dict[str, Any] = {"baseline": prepared} if where == "baseline" else {"variants": {"fast": prepared}}
    with refused(
        f"operator 'double': {where!r} has prepare=, which takes the operator's constants, but there are none"
    ):
        declare(**change)
    assert declare(**change, constants=["weight"]).constants == ("weight",)


# Variant


@pytest.mark.parametrize("what", ["prepare", "valid"])
def test_options_of_a_variant_that_must_be_functions(what: str) -> None:
    options: dict[str, Any] = {what: 4}
    with refused(f"Variant: {what} is 4, expected a function"):
        Variant(fast, **options)


def test_a_variant_without_a_function() -> None:
    with refused("Variant: function is None, expected a function"):
        Variant(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("need", ["gpu", "sm90", "sm_9", "sm_9000", "gpus", "gpus:two", "CUDA", "cuda "])
def test_a_need_that_nobody_can_meet(need: str) -> None:
    with refused(f"Variant: needs={need!r} is unknown, expected cpu, cuda, triton, sm_NN or gpus:N"):
        Variant(fast, needs=need)


@pytest.mark.parametrize("need", ["cpu", "cuda", "triton", "sm_90", "sm_120", "gpus:2"])
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


def test_a_tolerance_for_tf32_is_taken_as_it_is() -> None:
    mine = Tolerance(rtol=1e-1)
    operator = declare(tolerance={"float32": EXACT, "tf32": mine})
    assert operator.at(operator.cases[0]).tolerance_for("float32") == EXACT
    found = operator.at(operator.cases[0], tf32=True).tolerance_for("float32")
    assert found == Tolerance(rtol=1e-1, spacing=TF32_SPACING)


def test_gradients_have_it_too_in_every_direction() -> None:
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


@pytest.mark.parametrize("value", [0, 1, "high", "tf32"])
def test_an_axis_tf32_is_a_yes_or_no(value: object) -> None:
    with pytest.raises(DeclarationError, match=r"axis 'tf32' has the value .*, expected True or False"):
        declare(cases=[{"rows": 1, "tf32": value}])


def variants_of(values: Any, make: Callable[[Any], Any]) -> dict[str, Any]:
    return {f"v{value}": make(value) for value in values}


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
    assert list(declare(variants=variants_of((1, 2), make)).variants) == ["v1", "v2"]


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


@pytest.mark.parametrize("value", [[1024, 2048], ["float32"], [[1]], []])
def test_a_list_is_no_value_of_an_axis(value: Any) -> None:
    with pytest.raises(
        DeclarationError, match=r"axis 'rows' has the list .* as its value.*grid\(rows=\[\.\.\.\]\) makes"
    ):
        declare(cases=[{"rows": value}])
