"""Definitions of FlashInfer-Trace and SOL-ExecBench as operators: `run` of the reference is the baseline, each workload is a case.

The rules of names, cases and inputs are in docs/problems.md; histories depend on them. KernelBench's form is in `worker.problems`.
"""

import functools
import inspect
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch

from pairbench.errors import DeclarationError, SuiteError
from pairbench.execute.worker import problems
from pairbench.execute.worker.calls import Make
from pairbench.execute.worker.problems import bound, digest_of_code, name_of
from pairbench.model.case import REASSOCIATED
from pairbench.model.operator import Operator, Variant
from pairbench.model.plain import Value
from pairbench.own_folders import hold_folder
from pairbench.suite.definitions import FLOATS, Definition, Solution, Workload, digest_of, label_of, read_definition
from pairbench.suite.modules import PROBLEM, load_module

_RESERVED = ("workload", "tf32", "direction")  # names of axes that mean something else in pairbench
_SHORT = 8  # the characters of a uuid that stand in a case's key, where they tell workloads apart
Named = dict[str, Any]  # values by name, as of a namespace, or of axes
_RANGES = {"A_cumsum": (-0.1, 0.0), "A_log": (-5.0, -1.0), "A": (-1.0, -0.001), "g": (-5.0, 0.0)}
_folder = functools.cache(hold_folder)


def operator_of(path: Path, module: ModuleType | None, against: str) -> Operator:
    """Return the operator of a problem's file, with the candidates in `against`; `module` is the loaded file of a problem of KernelBench's form."""
    if module is not None:
        return problems.operator_of(path, module, against)
    left_out: list[str] = []
    definition = read_definition(path)
    workloads = definition.workloads(left_out)
    reference = _loaded({"reference.py": definition.reference}, "reference.py")
    where = f"suite {label_of(path)}: its reference"
    run = function_in(reference, "run", where)
    short = Counter(one.uuid[:_SHORT] for one in workloads)
    by_name = {one.uuid if short[one.uuid[:_SHORT]] > 1 else one.uuid[:_SHORT]: one for one in workloads}
    varying = [name for name, rule in definition.axes.items() if rule is None]
    axes = {name: f"axis_{name}" if name in _RESERVED else name for name in varying}
    cases = [{axes[name]: one.axes[name] for name in axes} | {"workload": key} for key, one in by_name.items()]
    custom = function_in(reference, definition.custom, where) if definition.custom else None
    made = Cases(definition=definition, by_name=by_name, custom=custom)
    candidates = []
    for name, one in definition.solutions(against, left_out).items():
        texts = one.sources or {"": one.path.read_text(errors="replace")}
        codes = {file: digest_of_code(text.encode()) for file, text in texts.items()}
        digest = digest_of(replace(one, path=Path(), sources=codes), *([one.flags] if one.flags else ()))
        needs = ("triton",) if "triton" in one.languages else ("cuda",) if _sources_in(one, ".cu") else ()
        load = functools.partial(load_solution, one, definition)
        candidates.append(Candidate(name_of(name, "solution"), digest, load, needs))
    meaning = digest_of(replace(definition, path=Path(), reference=""))
    digest = meaning + digest_of_code(definition.reference.encode())
    entry = Returning(function=run, outputs=tuple(definition.outputs))
    operator = assembled(
        name_of(definition.name, "op"),
        {"__name__": reference.__name__, "made": made, "problem_digest": digest, "entry": entry},
        cases,
        [made.cost(name)[1] for name in by_name],
        candidates,
        # Integers may be indices, which say how much of the other inputs is read.
        cost=made.cost if all(one.shape is None or one.dtype in FLOATS for one in definition.inputs.values()) else None,
        source=f"{PROBLEM} {'SOL-ExecBench' if definition.is_sol else 'FlashInfer-Trace'}: {definition.name}",
    )
    operator.baseline.function.__doc__ = run.__doc__
    vars(operator).update(left_out=tuple(left_out))
    return operator


class Candidate(NamedTuple):
    name: str
    digest: str
    load: Callable[[Mapping[str, int]], Callable[..., Any]]
    """Loads it in the process that calls it, for a case's sizes of axes, and returns a function of the inputs."""
    needs: tuple[str, ...] = ()


def assembled(
    name: str, space: Named, cases: list[Named], sizes: list[float], candidates: Iterable[Candidate], **more: Any
) -> Operator:
    """Return an operator whose baseline is `entry`, a function of the inputs that `made` returns; hashes cover both by `problem_digest`: all three are in `space`."""
    variants = {"compiled": Variant(bound(_call, space), prepare=bound(_compiled, space), kind="library")}
    for one in candidates:
        own = {"__name__": space["__name__"], "load": one.load, "solution_digest": one.digest}
        key = one.name
        while key in variants:  # names that differ in other characters alone
            key += "_"
        variants[key] = Variant(bound(_call, own), prepare=bound(_prepare, own), needs=one.needs)
    smallest = cases.pop(sizes.index(min(sizes)))
    return Operator(
        name,
        baseline=bound(_reference, space),
        variants=variants,
        inputs=bound(_inputs, space),
        cases={"smoke": [smallest], "real": cases},
        constants=["axis sizes"],
        tolerance=REASSOCIATED,
        **more,
    )


class Cases(Value):
    """Inputs and cost of a case by its axis `workload`."""

    definition: Definition
    by_name: dict[str, Workload]
    custom: Callable[..., Any] | None

    def __call__(self, workload: str, make: Make) -> dict[str, Any]:
        """Return the inputs in the order of the definition, and the sizes of the axes, for which a candidate makes its outputs."""
        one, own = self.by_name[workload], dict[str, Any]()
        given = {name: one.inputs.get(name, {}) for name in self.definition.inputs}
        if self.custom and (wanted := [name for name, of in given.items() if of.get("type") == "custom"]):
            scalars = {name: of["value"] for name, of in given.items() if of.get("type") == "scalar"}
            own = self.custom({**one.axes, **scalars}, make.device)
            if not isinstance(own, dict) or not own.keys() >= set(wanted):
                expected = f"expected a dict with {', '.join(wanted)}"
                raise DeclarationError(f"{self.definition.custom} returned {own!r:.60}, {expected}")
        inputs = {name: self._input(name, of, one, own, make) for name, of in given.items()}
        return {**inputs, "axis sizes": dict(one.axes)}

    def _input(self, name: str, given: dict[str, Any], workload: Workload, own: dict[str, Any], make: Make) -> Any:
        definition, spec = self.definition, self.definition.inputs[name]
        shape, dtype = spec.sizes(workload.axes), getattr(torch, spec.dtype)
        match given.get("type", "random"):
            case "scalar" if spec.shape is None or given["value"] is None:
                return given["value"]
            case "scalar":
                return torch.full(shape, given["value"], dtype=dtype, device=make.device)
            case "custom":
                return own[name].to(make.device) if isinstance(own[name], torch.Tensor) else own[name]
            case "safetensors":
                try:
                    from safetensors import safe_open

                    with safe_open(definition.blob(given["path"]), "pt") as tensors:
                        value = tensors.get_tensor(given["tensor_key"]).to(make.device)
                except Exception as error:
                    advice = "; pip install 'pairbench[corpora]'" if isinstance(error, ImportError) else ""
                    raise DeclarationError(f"{name!r} of {given['path']!r} cannot be read: {error}{advice}") from error
                if (tuple(value.shape), value.dtype) != (shape, dtype):
                    held = f"{value.dtype} of {tuple(value.shape)}, expected {dtype} of {shape}"
                    raise DeclarationError(f"{name!r} of {given['path']!r} is {held}")
                return value
        named = _by_name(name, shape, dtype, make) if definition.is_sol and spec.dtype in FLOATS[:4] else None
        value = _drawn(spec.dtype, shape, make) if named is None else named
        value = value.softmax(-1) if definition.op_type == "sampling" and name == "probs" else value
        return value.item() if spec.shape is None else value

    def cost(self, workload: str, **_: object) -> tuple[float, float]:
        """Return no floating-point operations, which a definition does not tell, and the bytes of all inputs and outputs."""
        specs, axes = (*self.definition.inputs.values(), *self.definition.outputs.values()), self.by_name[workload].axes
        tensors = [one for one in specs if one.shape is not None]
        return 0.0, float(sum(math.prod(one.sizes(axes)) * getattr(torch, one.dtype).itemsize for one in tensors))


def _drawn(dtype: str, shape: tuple[int, ...], make: Make) -> torch.Tensor:
    if dtype.startswith("float8"):
        return make.normal(*shape).clamp_(-2, 2).to(getattr(torch, dtype))
    if dtype in FLOATS:
        return make.normal(*shape, dtype=dtype)
    low, high = {"int8": (-128, 128), "uint8": (0, 256), "bool": (0, 2)}.get(dtype, (-1024, 1024))
    return make.integers(*shape, low=low, high=high, dtype=dtype)


def _by_name(name: str, shape: tuple[int, ...], dtype: torch.dtype, make: Make) -> torch.Tensor | None:
    """Return the values that SOL-ExecBench gives a floating-point input of a name; None for all other names."""
    called = functools.partial(re.fullmatch, string=name)
    if called(r"(.*_|.*layer)?norm_(weight|bias)|.*norm\d+_(weight|bias)"):
        return (make.zeros if name.endswith("bias") else make.ones)(*shape, dtype=dtype)
    if called("(attention|causal)_mask") and len(shape) > 1 and shape[-1] == shape[-2]:
        return make.zeros(*shape, dtype=dtype).fill_(torch.finfo(dtype).min).triu_(1)
    if called("(x|text|aspect_ratio|drop|attention)_mask"):
        return make.integers(*shape, high=2).to(dtype)
    if called("(rope_)?(cos|sin)(_cached)?"):
        angle = make.uniform(*shape, low=-math.pi, high=math.pi)
        return (angle.cos() if "cos" in name else angle.sin()).to(dtype)
    if called(r"(.*_)?((rstd|std|var)\d*|variance)"):
        return make.normal(*shape, dtype=dtype).abs_() + 0.1
    if name in _RANGES:
        decay = make.uniform(*shape, low=_RANGES[name][0], high=_RANGES[name][1], dtype=dtype)
        return decay.cumsum(-1) if name == "A_cumsum" else decay
    if called("(attn|attention|routing)_weights"):
        return make.normal(*shape).softmax(-1).to(dtype)
    matrix = len(shape) > 1 and called(r"weight\d*|.*_(weights?|projs?|weight_matrix)\d*")
    return make.normal(*shape, dtype=dtype) / math.sqrt(shape[-1]) if matrix else None


class Returning(Value):
    """A function of the inputs that returns the outputs in the order of the definition: one alone, or a tuple."""

    function: Callable[..., Any]
    outputs: tuple[str, ...]

    def __call__(self, *inputs: Any) -> Any:
        found = self.function(*inputs)
        if isinstance(found, dict):
            found = tuple(found.get(name) for name in self.outputs)
        if not isinstance(found, list | tuple):
            return found
        if len(found) != len(self.outputs):
            raise SuiteError(f"returned {len(found)} outputs, expected {len(self.outputs)}: {', '.join(self.outputs)}")
        return tuple(found) if len(found) > 1 else found[0]


def load_solution(one: Solution, definition: Definition, sizes: Mapping[str, int]) -> Callable[..., Any]:
    """Load a candidate in the process that calls it, and return a function of the inputs; destination passing makes the outputs within the call."""
    if one.flags is not None:
        module = _compiled_extension(one)
    else:
        module = _loaded(one.sources, one.entry) if one.sources else load_module(one.path.resolve())
    function, outputs, into = function_in(module, one.function, one.path.name), definition.outputs, one.into
    if into is None:
        into = len(inspect.signature(function).parameters) > len(definition.inputs)
    if not into:
        return Returning(function=function, outputs=tuple(outputs))
    forms = [(spec.sizes(sizes), getattr(torch, spec.dtype)) for spec in outputs.values()]

    def into_new(*inputs: Any) -> Any:
        device = next((value.device for value in inputs if isinstance(value, torch.Tensor)), None)
        made = tuple(torch.empty(shape, dtype=dtype, device=device) for shape, dtype in forms)
        function(*inputs, *made)
        return made if len(made) > 1 else made[0]

    return into_new


def function_in(module: ModuleType, name: str, where: str) -> Callable[..., Any]:
    if not callable(function := getattr(module, name, None)):
        raise SuiteError(f"{where} defines no function {name}")
    return function


def _loaded(sources: Mapping[str, str], entry: str) -> ModuleType:
    """Load a Python source that stands as text in a JSON file; sources beside it can be imported."""
    folder = _folder() / digest_of(sorted(sources.items()))
    _write(sources, folder)
    return load_module((folder / entry).resolve())


def _write(sources: Mapping[str, str], folder: Path) -> None:
    """Write sources whole, where another worker has not done so: a newer one would be compiled again."""
    for name, text in sources.items():
        file = folder / name
        if not file.is_file():
            file.parent.mkdir(parents=True, exist_ok=True)
            partial = file.with_name(f"{file.name}.{os.getpid()}")
            partial.write_text(text, encoding="utf-8")
            partial.replace(file)


def _sources_in(one: Solution, *suffixes: str) -> list[str]:
    return [name for name in one.sources if name.endswith(suffixes)]


def _compiled_extension(one: Solution) -> ModuleType:
    """Compile a candidate by torch's loader of extensions, once for all workers of a run, and load it."""
    from torch.utils.cpp_extension import load

    name = f"solution_{digest_of(sorted(one.sources.items()), one.flags)}"
    folder = Path(os.environ["TRITON_CACHE_DIR"]).with_name("extensions") / name  # of this run, as compiled kernels are
    _write(one.sources, folder)
    options = {"cflags": "extra_cflags", "cuda_cflags": "extra_cuda_cflags", "ld_flags": "extra_ldflags"}
    try:
        return load(
            name=name,
            sources=[str(folder / path) for path in _sources_in(one, ".cu", ".cpp", ".cc", ".cxx", ".c")],
            extra_include_paths=[str(folder)],
            build_directory=str(folder),
            with_cuda=bool(_sources_in(one, ".cu")),
            **{key: one.flags[flag] for flag, key in options.items() if one.flags and flag in one.flags},
        )
    except (RuntimeError, OSError, ImportError) as error:
        said = str(error).replace(f"{folder}/", "").splitlines()
        why = next((line for line in said if "error:" in line), said[0] if said else "no output")
        raise SuiteError(f"{one.path.name}: it cannot be compiled: {why[:300]}") from error


# These run in a namespace of the problem or of the candidate, see `problems.bound`. Each that is not timed alone names the digest, for hashes.
# mypy: disable-error-code="no-untyped-def, name-defined"
# ruff: noqa: F821, ARG001


def _reference(**inputs):
    assert problem_digest
    del inputs["axis sizes"]
    return entry(*inputs.values())


def _call(**inputs):
    function = inputs.pop("entry function")
    del inputs["axis sizes"]
    return function(*inputs.values())


def _compiled(**constants):
    import torch

    assert problem_digest
    return {"entry function": torch.compile(entry)}


def _inputs(make, /, *, workload, **axes):
    assert problem_digest
    return made(workload, make)


def _prepare(**constants):
    assert solution_digest
    return {"entry function": load(constants["axis sizes"])}
