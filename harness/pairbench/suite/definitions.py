"""Definitions of FlashInfer-Trace and of SOL-ExecBench, its dialect: read from their files and checked; nothing of them is run here.

FlashInfer-Trace keeps definitions below a folder `definitions`, with `workloads` and `solutions` beside that folder; SOL-ExecBench keeps
`definition.json`, `workload.jsonl` and solutions in one folder. A wrong definition raises a SuiteError; a workload or a solution that
cannot be taken is left out with a sentence.
"""

import contextlib
import functools
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, NamedTuple

from pairbench.errors import SuiteError
from pairbench.model.plain import Value, field_of

FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
_DTYPES = (*FLOATS, "int64", "int32", "int16", "int8", "uint8", "bool")
_COMPILED = ("cpp", "cuda", "cuda_cpp", "cutlass", "cudnn", "cublas")
_LANGUAGES = ("python", "pytorch", "triton", "tilelang", "cute_dsl", "cutile", "cudnn_frontend", *_COMPILED)
_field = functools.partial(field_of, error=SuiteError)
_DESCRIPTORS = "random, scalar with value, safetensors with path and tensor_key, or custom with a custom_inputs_entrypoint, for one of"
_LFS = b"version https://git-lfs"  # how a pointer of Git LFS begins, which lies in the place of a large file


class Spec(NamedTuple):
    shape: tuple[str | int, ...] | None  # names of axes and numbers; None for a Python number
    dtype: str

    def sizes(self, axes: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(one if isinstance(one, int) else axes[one] for one in self.shape or ())


class Workload(NamedTuple):
    uuid: str
    axes: dict[str, int]  # the size of every axis, of constant and computed ones too
    inputs: dict[str, dict[str, Any]]
    """Descriptors by input: `random`, `scalar`, `safetensors` or `custom`; an input without one is random."""


class Solution(Value):
    path: Path
    function: str
    sources: dict[str, str]  # python sources by path; empty where `path` is a Python file itself
    entry: str
    languages: tuple[str, ...]
    into: bool | None
    """Whether it writes into outputs that are its last arguments; None where its number of parameters tells."""
    flags: Mapping[str, Any] | None = field(default=None, repr=False)  # no part of the digests of those in Python
    """Options of compilers and linker as SOL-ExecBench names them, `cflags`, `cuda_cflags` and `ld_flags`; None for Python."""


class Definition(Value):
    path: Path
    is_sol: bool
    name: str
    op_type: str
    axes: dict[str, int | str | None]
    """Each axis' name with its size, its expression where it is computed, or None where each workload gives its size."""
    inputs: dict[str, Spec]
    outputs: dict[str, Spec]
    reference: str
    custom: str  # name of the reference's function that makes inputs of the kind `custom`; empty where there is none

    @property
    def root(self) -> Path:
        """The folder that holds `definitions`, or that of a SOL-ExecBench problem."""
        above = (one.parent for one in self.path.parents if one.name == "definitions" and not self.is_sol)
        return next(above, self.path.parent)

    def workloads(self, left_out: list[str]) -> list[Workload]:
        """Return the workloads in the order of the file, and add a sentence to `left_out` for each that cannot be taken."""
        pattern = "workload.jsonl" if self.is_sol else f"workloads/**/{self.name}.jsonl"
        file = min(self.root.glob(pattern), default=None)
        if file is None:
            raise SuiteError(f"suite {label_of(self.path)}: expected its workloads as {pattern} in {self.root}")
        found: dict[str, Workload] = {}
        for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").split("\n"), 1):
            where = f"{file.name}, line {number}"
            try:
                one = self._workload(_parsed(line, where), where) if line.strip() else None
            except SuiteError as error:
                left_out.append(f"workload {error}")
                continue
            if one and found.setdefault(one.uuid, one) is not one:
                left_out.append(f"workload {where}: the uuid {one.uuid!r} is that of an earlier line; give it its own")
        if not found:
            why = left_out[-1].removeprefix("workload ") if left_out else f"{file.name} is empty"
            raise SuiteError(f"suite {label_of(self.path)}: no workload can be taken: {why}")
        return list(found.values())

    def _workload(self, line: dict[str, Any], where: str) -> Workload:
        if (named := line.get("definition", self.name)) != self.name:
            raise SuiteError(f"{where}: it is a workload of the definition {named!r}, expected {self.name!r}")
        given = _field(line, "workload", dict, where) if "workload" in line else line
        sizes, inputs = _field(given, "axes", dict, where), _field(given, "inputs", dict, where)
        axes: dict[str, int] = {}
        for name, rule in self.axes.items():
            value = _computed(rule, axes) if isinstance(rule, str) else sizes.get(name) if rule is None else rule
            if type(value) is not int or value < 0:
                raise SuiteError(f"{where}: the axis {name!r} is {value!r}, expected a whole number, 0 or more")
            axes[name] = value
        for name, descriptor in inputs.items():
            told = f"{where}: the input {name!r}"
            match {"type": "random", **descriptor} if name in self.inputs and isinstance(descriptor, dict) else None:
                case {"type": "safetensors", "path": str(path), "tensor_key": str()}:
                    if (file := self.blob(path)) is None:
                        raise SuiteError(f"{told}: there is no {path!r} in {self.root}")
                    if file.stat().st_size < 1000 and file.read_bytes().startswith(_LFS):
                        raise SuiteError(f"{told}: {file.name} is a pointer of Git LFS; fetch it by `git lfs pull`")
                case {"type": "custom"} if self.custom:
                    pass
                case {"type": "random"} | {"type": "scalar", "value": None | bool() | int() | float() | str()}:
                    pass
                case _:
                    raise SuiteError(f"{told} is {descriptor!r:.80}, expected {_DESCRIPTORS} {', '.join(self.inputs)}")
        return Workload(str(given.get("uuid") or digest_of(given)), axes, inputs)

    def blob(self, path: str) -> Path | None:
        """Return the file of a stored input, looked for from the root on, and for a SOL-ExecBench problem from the folders above it too."""
        roots = [self.root, *(self.root.parents if self.is_sol else ())]
        return next((file for root in roots if (file := root / path).is_file()), None)

    def solutions(self, against: str, left_out: list[str]) -> dict[str, Solution]:
        """Return the solutions of the data set by name, then the candidates in `against`."""
        place, found = Path(against).resolve(), dict[str, Solution]()
        own = set(self.root.resolve().glob("solution*.json" if self.is_sol else "solutions/**/*.json"))
        candidates = {place} if against else set()
        if against and place.is_dir():
            candidates = {*place.rglob("*.json"), *place.glob(f"{self.name}.py")}
        kinds = dict.fromkeys(sorted(own - candidates), "solution") | dict.fromkeys(sorted(candidates), "candidate")
        for file, kind in kinds.items():
            asked = kind == "candidate" and place.is_file()
            alone = asked or (self.is_sol and kind == "solution")  # it is for this problem, or a mistake
            meant = alone or self.name in (file.stem, file.parent.name)
            try:
                if file.suffix == ".py":
                    name = file.stem if asked else file.parent.name
                    one = Solution(path=file, function="run", sources={}, entry="", languages=(), into=None)
                elif not meant and f'"{self.name}"' not in file.read_text(errors="replace"):
                    continue
                else:
                    document = _parsed(file.read_bytes(), label_of(file))
                    of = document.get("definition")
                    if alone and of != self.name:
                        raise SuiteError(f"{file.name}: it is for {of!r}, not for {self.name!r}")  # noqa: TRY301
                    if of != self.name or "sources" not in document:
                        continue
                    name, meant = str(document.get("name")), True
                    one = _solution(document, file)
            except SuiteError as error:
                left_out += [f"{kind} {error}"] if meant else []
                continue
            if name in found and kinds[found[name].path] != kind:
                del found[name]  # a candidate comes last, and goes before the data set's solution of its name
            if found.setdefault(name, one) is not one:
                left_out.append(f"{kind} {file.name}: {name!r} is the name of {found[name].path.name}, too")
        return found


def is_problem(path: Path) -> bool:
    """Return whether a file is a definition, by where it lies, or a list of inputs of BackendBench, by how it begins."""
    if path.suffix == ".txt":
        with contextlib.suppress(OSError), path.open(errors="replace") as text:
            return text.read(64).lstrip().startswith("Operator:")
    if path.name == "definition.json":
        return (path.parent / "workload.jsonl").is_file()
    above = [one for one in path.absolute().parents if one.name == "definitions"]
    beside = (one.with_name(name) for one in above for name in ("workloads", "solutions"))
    return path.suffix == ".json" and any(map(Path.is_dir, beside))


def read_definition(path: Path) -> Definition:
    """Read and check a definition; raise a SuiteError where it cannot be taken."""
    where = f"suite {label_of(path)}"
    document, axes = _parsed(path.read_bytes(), where), dict[str, int | str | None]()
    for axis, given in _field(document, "axes", dict, where).items():
        match given:
            case {"type": "var"}:
                axes[axis] = None
            case {"type": "const", "value": int(value)} | {"type": "expr", "expression": str(value)}:
                axes[axis] = value
            case _:
                expected = "expected type var, const with a whole number as value, or expr with an expression"
                raise SuiteError(f"{where}: the axis {axis!r} is {given!r:.80}, {expected}")
    inputs, outputs = (
        {key: _spec(one, axes, f"{where}: {side} {key!r}") for key, one in _field(document, side, dict, where).items()}
        for side in ("inputs", "outputs")
    )
    if not inputs or not outputs:
        raise SuiteError(f"{where}: it has no {'outputs' if inputs else 'inputs'}, expected at least one")
    return Definition(
        path=path,
        is_sol=path.name == "definition.json",
        name=_field(document, "name", str, where),
        op_type=str(document.get("op_type") or ""),
        axes=axes,
        inputs=inputs,
        outputs=outputs,
        reference=_field(document, "reference", str, where),
        custom=str(document.get("custom_inputs_entrypoint") or ""),
    )


def _spec(given: Any, axes: Mapping[str, Any], where: str) -> Spec:
    if not isinstance(given, dict) or not isinstance(shape := given.get("shape", ""), list | None):
        raise SuiteError(f"{where} is {given!r:.80}, expected a dtype, and a list of axes, or null, as shape")
    if (dtype := given.get("dtype")) not in _DTYPES:
        raise SuiteError(f"{where} has the dtype {dtype!r}, which cannot be taken; expected {', '.join(_DTYPES)}")
    sizes = [int(one) if isinstance(one, str) and one.isdecimal() else one for one in shape or ()]
    if unknown := [one for one in sizes if type(one) is not int and one not in axes]:
        raise SuiteError(f"{where} has the axis {unknown[0]!r}, expected one of {', '.join(axes)}")
    return Spec(None if shape is None else tuple(sizes), dtype)


def _solution(document: dict[str, Any], path: Path) -> Solution:
    where, spec = path.name, _field(document, "spec", dict, path.name)
    languages = tuple(spec.get("languages") or [spec.get("language")])
    if unknown := [one for one in languages if one not in _LANGUAGES]:
        raise SuiteError(f"{where}: its language is {unknown[0]!r}, expected one of {', '.join(_LANGUAGES)}")
    sources = {}
    for one in _field(document, "sources", list, where):
        name = _field(one if isinstance(one, dict) else {}, "path", str, f"{where}: a source")
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise SuiteError(f"{where}: the source {name!r} lies outside of its folder, expected a relative path")
        sources[name] = _field(one, "content", str, where)
    entry, _, function = _field(spec, "entry_point", str, where).partition("::")
    if entry not in sources or not function:
        expected = f"expected file::function with one of {', '.join(sources) or 'the sources'}"
        raise SuiteError(f"{where}: entry_point is {spec['entry_point']!r}, {expected}")
    into = _field({"destination_passing_style": True, **spec}, "destination_passing_style", bool, where)
    flags = None
    if {*languages} & {*_COMPILED}:
        flags = _field({"compile_options": {}, **spec}, "compile_options", dict, where)
        if (binding := spec.get("binding", "torch" if "languages" in spec else "tvm-ffi")) != "torch":
            raise SuiteError(f"{where}: its binding is {binding!r}, expected 'torch'")
    return Solution(
        path=path, function=function, sources=sources, entry=entry, languages=languages, into=into, flags=flags
    )


def label_of(path: Path) -> str:
    """Return the name of a file in messages, with its folder where all are called alike."""
    return f"{path.parent.name}/{path.name}" if path.name == "definition.json" else path.name


def digest_of(*values: object) -> str:
    return hashlib.sha256(repr(values).encode()).hexdigest()[:16]


def _parsed(text: str | bytes, where: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SuiteError(f"{where}: no JSON: {error}") from None
    if not isinstance(found, dict):
        raise SuiteError(f"{where}: it is {type(found).__name__} in JSON, expected an object")
    return found


def _computed(expression: str, axes: Mapping[str, int]) -> Any:
    """Return the value of an arithmetic expression of the axes before it; the expression itself where it has no value."""
    if not re.fullmatch(r"[\w\s+*/%(),-]+", expression):  # without attributes it reaches no names but these
        return expression
    try:
        value = eval(expression.strip(), {"__builtins__": {}}, {**axes, "min": min, "max": max})  # noqa: S307
        return int(value) if value == int(value) else value
    except (SyntaxError, NameError, TypeError, ValueError, ArithmeticError):
        return expression
