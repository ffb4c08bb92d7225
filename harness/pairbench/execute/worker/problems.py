"""Problem files of KernelBench's form as suites: `Model`, `get_init_inputs` and `get_inputs`, with candidates that define `ModelNew`.

A problem becomes one operator, whose name is the file's with its number last: `19_ReLU.py` is `ReLU_19`. Its baseline is `Model`, its
variants are `compiled` (`torch.compile` of the same module) and the candidates. The axis `dtype` casts weights and floating-point
inputs: float32 in the tier smoke, bfloat16 and float16 in the tier real.

Both modules are built under one seed, as KernelBench's own evaluation does, and where the names and shapes of their weights agree, the
candidate gets those of `Model`. Both stay in training mode with two exceptions, for a call must not depend on the calls before it:
dropout is off, and batch norm normalises by the batch while its running statistics stay.
"""

import ast
import contextlib
import functools
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import torch

from pairbench.errors import DeclarationError
from pairbench.execute.worker.calls import settle
from pairbench.model.case import REASSOCIATED
from pairbench.model.operator import Operator, Variant
from pairbench.suite.modules import PROBLEM, candidate_files

_SEED = 42  # that of KernelBench's own evaluation
_SAMPLE = re.compile(r"level_(\d+)_problem_(\d+)_(sample_\d+)_kernel")  # as KernelBench names what models have written


def operator_of(path: Path, module: ModuleType, against: str) -> Operator:
    """Return the operator of a loaded problem file, with the candidates in `against`, a file or a folder, or an empty text for none."""
    space = vars(module)
    space["problem_digest"] = digest_of_code(path.read_bytes())
    get_inputs = space["get_inputs"]  # which hashes see through `wraps`
    space["get_inputs"] = functools.wraps(get_inputs)(lambda: _given(get_inputs, list | tuple | Iterator))
    number, _, words = path.stem.partition("_")
    name = name_of(f"{words}_{number}" if number.isdigit() and words else path.stem, "problem")
    baseline = bound(_call, space)
    baseline.__doc__ = space["Model"].__doc__
    variants = {"compiled": Variant(bound(_call, space), prepare=_compiled, kind="library")}
    own = [("ModelNew", path)] if "ModelNew" in space else []
    for candidate, file in (*own, *_candidates(path, against)):
        variants[candidate] = _variant(file, module)
    return Operator(
        name,
        baseline=baseline,
        variants=variants,
        inputs=bound(_inputs, space),
        cases={"smoke": [{"dtype": "float32"}], "real": [{"dtype": "bfloat16"}, {"dtype": "float16"}]},
        constants=["model"],
        tolerance=REASSOCIATED,
        source=f"{PROBLEM} KernelBench: {path.name}",
    )


def _given(function: Any, kinds: Any) -> Any:
    if isinstance(given := function(), kinds):
        return given
    raise DeclarationError(f"{function.__name__}() returned {given!r:.60}, expected a list of arguments")


def _candidates(problem: Path, against: str) -> Iterator[tuple[str, Path]]:
    """Yield the name and the file of each candidate: of a folder the file with the problem's name, and samples of its level and number."""
    level, number = re.sub(r"\D", "", problem.parent.name), problem.stem.partition("_")[0]
    for file in candidate_files(against):
        sample = _SAMPLE.fullmatch(file.stem)
        if file == Path(against):
            yield name_of(file.stem, "candidate"), file
        elif file.stem == problem.stem:
            yield name_of(file.resolve().parent.name, "candidate"), file
        elif sample and (sample[1], sample[2]) == (level, number):
            yield sample[3], file


def name_of(text: str, kind: str) -> str:
    """Return a text as a name of an operator or variant; a text that is none follows its kind."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", text)
    return name if re.match("[A-Za-z]", name) and name not in ("baseline", "compiled") else f"{kind}_{name}"


def _variant(file: Path, problem: ModuleType) -> Variant:
    """Return a candidate. Its file is loaded as it is prepared, in the process that calls it: the judge never loads it, and what loading changes is the candidate's doing."""
    space = {"__name__": problem.__name__, "problem_digest": digest_of_code(file.read_bytes())}
    prepare = functools.partial(bound(_candidate, space), file=file.resolve(), get_init_inputs=problem.get_init_inputs)
    return Variant(bound(_call, space), prepare=prepare)


def digest_of_code(content: bytes) -> str:
    """Return a digest of Python code without formatting: hashes follow no methods of classes, and a problem is made of them."""
    with contextlib.suppress(SyntaxError, ValueError):  # which is said where the file is loaded
        content = ast.dump(ast.parse(content)).encode()
    return hashlib.sha256(content).hexdigest()[:16]


def bound(function: Any, space: dict[str, Any]) -> FunctionType:
    """Return a function as though it stood in the file of the problem, or of the candidate, whose names it takes."""
    bound = FunctionType(function.__code__, space)
    bound.__module__ = space["__name__"]
    return bound


def _compiled(model: Any) -> dict[str, Any]:
    return {"model": torch.compile(model)}


# The next three run in the namespace of the problem's or the candidate's file, see `bound`, so they import what else they need.


def _call(model, args):  # type: ignore[no-untyped-def]
    return model(*args)


def _inputs(make, dtype):  # type: ignore[no-untyped-def]
    import torch

    from pairbench.execute.worker.problems import built, cast

    # Named here, so that the hash of the definition covers the digest of the file.
    assert problem_digest  # type: ignore[name-defined]  # noqa: F821
    model = built(Model, get_init_inputs, make.device, getattr(torch, dtype))  # type: ignore[name-defined]  # noqa: F821
    with torch.device(make.device):
        args = get_inputs()  # type: ignore[name-defined]  # noqa: F821
    return {"model": model, "args": cast(list(args), make.device, getattr(torch, dtype))}


def _candidate(model, *, file, get_init_inputs):  # type: ignore[no-untyped-def]
    from pairbench.errors import SuiteError
    from pairbench.execute.worker.problems import built, shapes
    from pairbench.suite.modules import load_module

    assert problem_digest  # type: ignore[name-defined]  # noqa: F821 (as in `_inputs`, of the candidate's file)
    if (made := getattr(load_module(file), "ModelNew", None)) is None:
        raise SuiteError(f"{file.name} defines no class ModelNew")
    candidate = built(made, get_init_inputs, *model.pairbench_place)
    if shapes(candidate) == shapes(model):
        candidate.load_state_dict(model.state_dict())
    return {"model": candidate}


def built(module_class: Any, get_init_inputs: Any, device: Any, dtype: Any) -> Any:
    """Return a module of a class, made under KernelBench's seed on a device and cast to a dtype."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []), device:
        torch.manual_seed(_SEED)
        given = _given(get_init_inputs, list | tuple | dict)
        torch.manual_seed(_SEED)
        module = module_class(**given) if isinstance(given, dict) else module_class(*given)
        if not isinstance(module, torch.nn.Module):
            name, kind = getattr(module_class, "__name__", "it"), type(module).__name__
            raise DeclarationError(f"{name}(...) made an object of type {kind}, expected a torch.nn.Module")
    settle(module.to(device=device, dtype=dtype))
    module.pairbench_place = device, dtype  # for a candidate: a module may have no weights that tell
    return module


def cast(value: Any, device: Any, dtype: Any) -> Any:
    """Return inputs with their tensors on a device, those of floating-point numbers in a dtype; lists are gone through, other values stay."""
    if isinstance(value, list | tuple):
        return type(value)(cast(one, device, dtype) for one in value)
    if isinstance(value, torch.Tensor):
        return value.to(device=device, dtype=dtype if value.is_floating_point() else None)
    return value


def shapes(module: Any) -> dict[str, Any]:
    return {name: value.shape for name, value in module.state_dict().items()}
