"""Declarations: an operator with its baseline, its variants and all that is needed to verify and time them."""

import copy
import difflib
import inspect
import itertools
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from pairbench.errors import DeclarationError
from pairbench.model.case import (
    OUTPUT_GRADIENTS,
    SAVED,
    TF32_SPACING,
    TIERS,
    Case,
    Claim,
    Direction,
    Tolerance,
    check_claims,
    check_gradients,
    declaring,
    gradient_of,
    make_case,
    takes,
    with_directions,
    with_tf32,
)
from pairbench.model.plan import LIBRARY

if TYPE_CHECKING:
    from packaging.requirements import Requirement

_LETTERS = "expected a name of ASCII letters, digits and _ . -"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_NEED = re.compile(r"cpu|cuda|triton|sm_\d{2,3}|gpus:\d+")
_PACKAGE = "package:"


def needed_packages(needs: Iterable[str]) -> "list[Requirement]":
    """Return the packages among what an implementation needs, such as `package:liger_kernel>=0.8`; raise ValueError for one of another form."""
    wanted = [need.removeprefix(_PACKAGE) for need in needs if need.startswith(_PACKAGE)]
    if not wanted:  # as in most suites, which do without loading this
        return []
    from packaging.requirements import Requirement

    return [Requirement(text) for text in wanted]


class Cost(NamedTuple):
    """The least work that a case demands of any implementation; the roofline is computed from it."""

    flops: float
    """Floating-point operations; a multiply-add counts as two."""
    bytes: float
    """Bytes through device memory: every input read once, every output written once."""


class _Declared:
    def __new__(cls, *_: object, **given: object) -> Self:
        """Raise a DeclarationError for a keyword argument of an unknown name, with the nearest known name."""
        known = list(inspect.signature(cls.__init__).parameters)[1:]
        for name in given:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                advice = f"did you mean {near[0]}=?" if near else f"expected {', '.join(known)}"
                raise DeclarationError(f"{cls.__name__}: there is no argument {name}=; {advice}")
        return super().__new__(cls)


@dataclass(frozen=True, kw_only=True)
class Variant(_Declared):
    """An implementation with the conditions under which it may be used.

    `function` takes the inputs as keyword arguments and returns a tensor, or a tuple, list or dict of them.
    """

    function: Callable[..., Any]
    prepare: Callable[..., Mapping[str, Any]] | None = None
    """Untimed one-off work. Takes the operator's `constants` as keyword arguments and returns what replaces them or
    is passed beside them. It never sees the other inputs, so it cannot compute the outputs in advance."""
    valid: Callable[..., bool | str] | None = None
    """A function of the inputs: True where the mathematics is the same, else False or a sentence that says why it is not."""
    needs: tuple[str, ...] = ()
    """What the implementation needs: `cuda`, `cpu`, `triton`, `sm_90` (that architecture or newer), `gpus:2`, or a package
    as pip names it, `package:liger_kernel>=0.8`; without all of that it is skipped with a reason. On a CPU
    `triton` is met for verification only, through Triton's interpreter."""
    builds_on: str = ""
    """Name of the earlier variant that this one extends; results then show the speedup over that variant, too. Empty if it extends none."""
    consumes: tuple[str, ...] = ()
    """Inputs that a call may overwrite, in the forward or the backward pass. The variant gets its own copies of these inputs, which are restored
    before each call, outside of the clock; their values after a call are not judged. `output gradient` stands for the gradients of the outputs, and
    `saved tensors` for what the forward has saved beside its inputs: no graph is gone through twice then."""
    compiled: bool = False
    """Whether the function is called through `torch.compile`, each case by itself (`dynamic=False`), as all functions are in mode compile."""
    kind: str = ""
    """`library` for what one would use instead of an own kernel: PyTorch's own function, its compiler, or another package. The other variants
    are compared with the fastest of these, and of the baseline, beside their speedup over the baseline."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        prepare: Callable[..., Mapping[str, Any]] | None = None,
        valid: Callable[..., bool | str] | None = None,
        needs: str | Sequence[str] = (),
        builds_on: str = "",
        consumes: Sequence[str] = (),
        compiled: bool = False,
        kind: str = "",
    ) -> None:
        with declaring("Variant"):
            for what, value in (("function", function), ("prepare", prepare), ("valid", valid)):
                if not callable(value) and (value is not None or what == "function"):
                    raise DeclarationError(f"{what} is {value!r}, expected a function")
            wanted = (needs,) if isinstance(needs, str) else tuple(needs)
            for need in wanted:
                if not _NEED.fullmatch(need) and not need.startswith(_PACKAGE):
                    expected = "expected cpu, cuda, triton, sm_NN, gpus:N or package:NAME"
                    raise DeclarationError(f"needs={need!r} is unknown, {expected}")
                try:
                    needed_packages([need])
                except ValueError as error:
                    expected = "expected a name and versions as pip takes them, such as package:liger_kernel>=0.8"
                    raise DeclarationError(f"needs={need!r} names no package, {expected}") from error
            if kind not in ("", LIBRARY):
                raise DeclarationError(f"kind={kind!r} is unknown, expected {LIBRARY!r}, or none")
            consumed = _names("consumes", consumes)
            vars(self).update(function=function, prepare=prepare, valid=valid)
            vars(self).update(needs=wanted, builds_on=builds_on, consumes=consumed, compiled=bool(compiled), kind=kind)


@dataclass(frozen=True, kw_only=True)
class Operator(_Declared):
    """A computation with a contract, its plain implementation and the optimised ones.

    Example:
        >>> rms_norm = Operator(
        ...     "rms_norm",
        ...     baseline=eager,
        ...     variants={"fused": fused},
        ...     inputs=inputs,  # def inputs(make, tokens, hidden, dtype) -> {"x": make.normal(...), ...}
        ...     cases=grid(tokens=[1, 4096], hidden=[8192], dtype=["bfloat16"]),
        ... )
    """

    name: str
    baseline: Variant
    variants: Mapping[str, Variant]
    inputs: Callable[..., Mapping[str, Any] | tuple[Any, ...]]
    """A function of `make` and the case's axes that returns the arguments of every implementation: a dict by name, or a tuple by position."""
    cases: tuple[Case, ...]
    impostors: Mapping[str, Variant] = field(default_factory=dict)
    """Deliberately wrong implementations. Each must be rejected in every case where its `valid` lets it run."""
    oracle: Callable[..., Any] | None = None
    """A function that computes the exact outputs from float64 inputs; None to use the baseline."""
    tolerance: Tolerance | Mapping[str, Tolerance] = field(default_factory=Tolerance)
    """The tolerance of all outputs, or one for each output dtype; dtypes not named have the default. Where TF32 is allowed, that of
    float32 is widened to TF32's rounding (`with_tf32`), unless there is one under the name `tf32`."""
    cost: Callable[..., Any] | None = None
    """A function of the axes that returns the least work of a case, as a `Cost`, a mapping `{"flops": ..., "bytes": ...}` or two numbers."""
    constants: tuple[str, ...] = ()
    """Inputs that stay the same from call to call, as weights do; what `prepare` may see."""
    state: tuple[str, ...] = ()
    """Inputs that a call may change, as KV caches; each implementation has its own copy, which is judged like its output."""
    gradients: tuple[str, ...] = ()
    """Inputs, or parameters of modules among them, of which training needs the gradients. Each case then has the axis `direction`."""
    gradient_tolerance: Tolerance | Mapping[str, Tolerance] | None = None
    """The tolerance of all gradients, or one for each name in `gradients` or dtype; None for that of outputs."""
    direction: Direction | None = field(default=None, init=False)
    """What calls compute, in a worker that is at a case of it; None where no gradients are named."""
    tf32: bool = field(default=False, init=False)
    """Whether float32 products and convolutions may use TF32, in a worker that is at a case of it."""
    left_out: tuple[str, ...] = field(default=(), init=False)
    """Workloads, solutions and candidates of a problem that were not taken, a sentence each. Part of no hash."""
    reset: bool | Callable[..., object] = False
    """How state is put back before each call, outside of the clock: True to restore the values that `inputs` gave it, at the same
    addresses, or a function that takes the state as keyword arguments and changes it in place. False leaves what the last call left."""
    batched: str | None = None
    """An axis whose elements are computed independently of one another, so that the float64 oracle may be computed in slices along it where
    memory is short; None where there is none. Part of no hash."""
    accepts_constant: bool = False
    """Whether outputs that are the same for all inputs are meant, as those of a mask that sizes alone determine. Part of no hash."""
    source: str = ""
    """The pair's origin: a pull request, a paper; empty where none is given."""
    owner: str = ""
    """Who is asked when it got slower: a person or a team, as a forge writes them; empty where nobody is named. Part of no hash."""
    claims: tuple[Claim, ...] = ()
    """Published figures; they are shown beside what is measured, and are part of no hash."""

    def __init__(
        self,
        name: str,
        *,
        baseline: Callable[..., Any] | Variant,
        variants: Mapping[str, Callable[..., Any] | Variant],
        inputs: Callable[..., Mapping[str, Any] | tuple[Any, ...]],
        cases: Sequence[Mapping[str, Any]] | Mapping[str, Sequence[Mapping[str, Any]]],
        impostors: Mapping[str, Callable[..., Any] | Variant] | None = None,
        oracle: Callable[..., Any] | None = None,
        tolerance: Tolerance | Mapping[str, Tolerance] | None = None,
        cost: Callable[..., Any] | None = None,
        constants: Sequence[str] = (),
        state: Sequence[str] = (),
        gradients: Sequence[str] = (),
        gradient_tolerance: Tolerance | Mapping[str, Tolerance] | None = None,
        reset: bool | Callable[..., object] = False,
        consumes: Sequence[str] = (),
        batched: str | None = None,
        accepts_constant: bool = False,
        source: str = "",
        owner: str = "",
        claims: Sequence[Claim] = (),
    ) -> None:
        with declaring(f"operator {name!r}"):
            if not (isinstance(name, str) and _NAME.fullmatch(name)):
                raise DeclarationError(f"{_LETTERS}, starting with a letter")
            for what, value in (("inputs", inputs), ("oracle", oracle), ("cost", cost)):
                if not callable(value) and (value is not None or what == "inputs"):
                    raise DeclarationError(f"{what} is {value!r}, expected a function")
            if not isinstance(variants, Mapping) or not variants:
                raise DeclarationError(f"variants is {variants!r}, expected at least one: {{'name': function}}")
            plain = _implementation("baseline", baseline)
            consumed = (*plain.consumes, *_names("consumes", consumes))
            optimised = _steps(_implementations("variant", variants))
            wrong = _implementations("impostor", impostors or {})
            trained, kept = _names("gradients", gradients), _names("state", state)
            if gradient_tolerance is not None and not trained:
                raise DeclarationError("gradient_tolerance= is about gradients, but none are named: gradients=['x']")
            points = _cases(name, inputs, cases, directed=bool(trained))
            if batched is not None and not all(type(dict(case.axes).get(batched)) is int for case in points):
                raise DeclarationError(f"batched is {batched!r}, expected the name of an axis of whole numbers")
            if not isinstance(owner, str) or not owner.isprintable() or len(owner) > 100:
                raise DeclarationError(f"owner is {owner!r:.120}, expected a name on one line, such as '@team/kernels'")
            vars(self).update(name=name, inputs=inputs, oracle=oracle, cost=cost, direction=None, tf32=False)
            vars(self).update(variants=optimised, impostors=wrong, gradients=trained, state=kept, cases=points)
            whole = replace(plain, consumes=tuple(dict.fromkeys(consumed)))
            vars(self).update(
                baseline=whole, tolerance=_by_dtype(_tolerance(tolerance)), constants=_names("constants", constants)
            )
            of_gradients = None if gradient_tolerance is None else _tolerance(gradient_tolerance)
            vars(self).update(gradient_tolerance=of_gradients, reset=_reset(reset, kept), batched=batched)
            vars(self).update(accepts_constant=bool(accepts_constant), source=str(source), owner=owner)
            vars(self).update(claims=check_claims(claims, points, optimised))
            if both := set(self.constants) & set(self.state):
                raise DeclarationError(f"input {min(both)!r} is declared as constant and as state, expected one")
            if self.draws and self.state:
                why = f"each of which would change the state {self.state[0]!r}; declare one or the other"
                raise DeclarationError(f"Tolerance(random=...) judges outputs over several calls, {why}")
            check_gradients(self.gradients, self.constants, self.state)
            for key, variant in {**self.implementations, **self.impostors}.items():
                _check_consumed(self, key, variant.consumes)
            preparing = [key for key, variant in self.implementations.items() if variant.prepare is not None]
            if preparing and not self.constants:
                hint = "name the inputs that stay the same from call to call: constants=['weight']"
                what = "has prepare=, which takes the operator's constants, but there are none"
                raise DeclarationError(f"{preparing[0]!r} {what}; {hint}")

    @property
    def implementations(self) -> dict[str, Variant]:
        """The baseline, under that name, and the variants, in the order of declaration."""
        return {"baseline": self.baseline, **self.variants}

    @property
    def draws(self) -> int:
        """The number of calls that one verdict on random outputs takes; 0 where none is declared as random."""
        given = [self.tolerance, self.gradient_tolerance or Tolerance()]
        return max(one.random for some in given for one in ([some] if isinstance(some, Tolerance) else some.values()))

    def tolerance_for(self, dtype: str, path: str = "") -> Tolerance:
        """Return the tolerance for an output, or a gradient, of a dtype, named as in `bfloat16`."""
        given = self.tolerance
        if self.gradient_tolerance is not None and (name := gradient_of(path)) is not None:
            given = self.gradient_tolerance
            if isinstance(given, Mapping) and name in given:
                given = given[name]
        rounded = self.tf32 and dtype in ("float32", "complex64")
        if rounded and isinstance(given, Mapping) and "tf32" in given:
            return replace(given["tf32"], spacing=TF32_SPACING)
        found = given if isinstance(given, Tolerance) else given.get(dtype, Tolerance())
        return with_tf32(found) if rounded else found

    def at(self, case: Case, *, tf32: bool = False) -> "Operator":
        """Return the operator whose calls compute what a case asks for: in a direction, where it has gradients, and in a precision."""
        here = self.towards(dict(case.axes)["direction"] if self.gradients else self.direction)  # type: ignore[arg-type]
        vars(here).update(tf32=tf32)
        return here

    def towards(self, direction: Direction | None) -> "Operator":
        """Return a copy of the operator whose calls run a direction: `fwd`, `bwd` or `fwd_bwd`."""
        directed = copy.copy(self)
        vars(directed).update(direction=direction)
        return directed


def _implementation(what: str, value: Any) -> Variant:
    if not (isinstance(value, Variant) or callable(value)):
        raise DeclarationError(f"{what} is {value!r}, expected a function or a Variant")
    return value if isinstance(value, Variant) else Variant(value)


def _implementations(what: str, values: Mapping[str, Any]) -> dict[str, Variant]:
    if not isinstance(values, Mapping):
        raise DeclarationError(f"{what}s is {values!r}, expected {{'name': function}}")
    for name in values:
        if not (isinstance(name, str) and _NAME.fullmatch(name)) or name == "baseline":
            raise DeclarationError(f"{what} {name!r}: {_LETTERS}, other than 'baseline'")
    made = {name: _implementation(f"{what} {name!r}", value) for name, value in values.items()}
    for (first, one), (second, other) in itertools.combinations(made.items(), 2):
        alike = _is_same(one.function, other.function)
        if alike and (one.prepare is other.prepare or _is_same(one.prepare, other.prepare)):
            why = "functions that are made in a loop see the last value of its variable when they are called"
            advice = "give each its own, as lambda x, *, n=n: ... does, or functools.partial(f, n=n)"
            same = f"{what}s {first!r} and {second!r} are the same function with the same values"
            raise DeclarationError(f"{same}; {why}: {advice}")
    return made


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two functions come from one place in the source and have the same values; one that has two names is meant so."""
    codes = [getattr(function, "__code__", None) for function in (one, other)]
    if one is other or codes[0] is None or codes[0] is not codes[1]:
        return False
    return one.__globals__ is other.__globals__ and all(
        first is second
        or (type(first) is type(second) and isinstance(first, bool | int | float | str) and first == second)
        for first, second in zip(_values_of(one), _values_of(other), strict=True)
    )


def _values_of(function: Any) -> list[object]:
    cells = [one.cell_contents for one in function.__closure__ or () if one != types.CellType()]
    return [*cells, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]


def _steps(variants: dict[str, Variant]) -> dict[str, Variant]:
    for index, (name, variant) in enumerate(variants.items()):
        if (base := variant.builds_on) and base not in list(variants)[:index]:
            raise DeclarationError(f"variant {name!r} builds on {base!r}, expected the name of a variant before it")
    return variants


def _cases(operator: str, inputs: Callable[..., Any], cases: Any, *, directed: bool) -> tuple[Case, ...]:
    tiers = cases if isinstance(cases, Mapping) else {"smoke": cases}
    for tier, points in tiers.items():
        if tier not in TIERS:
            raise DeclarationError(f"tier {tier!r} is unknown, expected one of {', '.join(TIERS)}")
        if isinstance(points, Mapping) or not isinstance(points, Sequence):
            raise DeclarationError(f"the {tier} cases are {points!r}, expected a list of dict(axis=value)")
    all_cases = tuple(
        make_case(operator, whole, tier, weighted=not takes(inputs, "weight"))
        for tier, points in tiers.items()
        for point in points
        for whole in (with_directions(point) if directed else (point,))
    )
    if not all_cases:
        raise DeclarationError("there are no cases, expected at least one: cases=grid(axis=[...])")
    added = {*(["direction"] if directed else []), *([] if takes(inputs, "tf32") else ["tf32"])}
    _check_axes(inputs, all_cases, added)
    seen: dict[str, str] = {}
    for case in all_cases:
        if case.key in seen:
            twice = f"case {case.key} is declared twice (tiers {seen[case.key]} and {case.tier})"
            raise DeclarationError(f"{twice}; every case is one series, so keep one of them")
        seen[case.key] = case.tier
    return all_cases


def _check_axes(inputs: Callable[..., Any], cases: tuple[Case, ...], added: set[str]) -> None:
    parameters = list(inspect.signature(inputs).parameters.values())
    if not parameters or parameters[0].kind not in (parameters[0].POSITIONAL_ONLY, parameters[0].POSITIONAL_OR_KEYWORD):
        raise DeclarationError("inputs() takes no positional argument, expected inputs(make, axis, ...)")
    axes = parameters[1:]
    if parameters[0].name in {axis for case in cases for axis, _ in case.axes}:
        what = f"the first parameter of inputs() is the axis {parameters[0].name!r}"
        expected = "expected inputs(make, axis, ...), with x = make.normal(...) inside"
        raise DeclarationError(f"{what}, and it is given the maker of the tensors; {expected}")
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in axes)
    known = {p.name for p in axes if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    required = {p.name for p in axes if p.name in known and p.default is p.empty}
    wanted = f"inputs({', '.join(p.name for p in parameters)})"
    for case in cases:
        given = {axis for axis, _ in case.axes} - added
        if not takes_any and (unknown := sorted(given - known)):
            what = f"which {wanted} does not take; rename the axis or add the parameter"
            raise DeclarationError(f"case {case.key} names the axis {unknown[0]!r}, {what}")
        if missing := sorted(required - given):
            raise DeclarationError(f"case {case.key} has no value for the axis {missing[0]!r} of {wanted}")


def _tolerance(value: Any) -> Tolerance | dict[str, Tolerance]:
    if value is None or isinstance(value, Tolerance):
        return value or Tolerance()
    if isinstance(value, Mapping) and all(isinstance(item, Tolerance) for item in value.values()):
        return dict(value)
    raise DeclarationError(f"tolerance is {value!r}, expected Tolerance(rtol=..., atol=...) or one for each dtype")


def _by_dtype(tolerance: Tolerance | dict[str, Tolerance]) -> Tolerance | dict[str, Tolerance]:
    """Refuse names that no output's dtype has, since their tolerances would never be used."""
    for name in () if isinstance(tolerance, Tolerance) else tolerance:
        if not re.fullmatch(r"tf32|bool|(b?float|complex|q?u?int)\d\w*", str(name)):
            raise DeclarationError(f"tolerance names {name!r}, expected the name of a dtype, as 'bfloat16', or 'tf32'")
    return tolerance


def _reset(value: Any, state: tuple[str, ...]) -> bool | Callable[..., object]:
    if not (isinstance(value, bool) or callable(value)):
        expected = "expected True to restore the state's values, or a function of the state"
        raise DeclarationError(f"reset is {value!r}, {expected}")
    if value and not state:
        hint = "name the inputs that a call changes: state=['cache']"
        raise DeclarationError(f"reset= puts state back, but there is none; {hint}")
    return value if callable(value) else bool(value)


def _names(what: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(name, str) for name in value):
        raise DeclarationError(f"{what} is {value!r}, expected a list of input names: [{value!r}]")
    return tuple(value)


def _check_consumed(operator: Operator, key: str, consumes: tuple[str, ...]) -> None:
    for what, others in (("constant, which stays", operator.constants), ("state, which is judged", operator.state)):
        if both := set(consumes) & set(others):
            raise DeclarationError(f"{key!r} consumes {min(both)!r}, which is declared as {what}; expected one of them")
    if (backward := {OUTPUT_GRADIENTS, SAVED} & set(consumes)) and not operator.gradients:
        raise DeclarationError(f"{key!r} consumes {min(backward)!r}, but there is no backward without gradients=['x']")
