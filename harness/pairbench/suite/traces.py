"""Problems in the form of FlashInfer-Trace, and of SOL-ExecBench, its dialect: read from their files and checked; nothing of them is run here.

A definition is a suite file. FlashInfer-Trace keeps it below a folder `definitions`, with `workloads`, `solutions` and `traces` beside that
folder; SOL-ExecBench keeps `definition.json`, `workload.jsonl` and solutions in one folder. What is wrong with a definition raises a
SuiteError; a workload or a solution that cannot be taken is left out with a sentence.
"""

import ast
import functools
import hashlib
import json
import operator
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pairbench.errors import SuiteError
from pairbench.model.plain import Value

FLASHINFER, SOL = "FlashInfer-Trace", "SOL-ExecBench"
_KINDS = {dict: "an object", list: "a list", str: "a text", int: "a whole number", bool: "true or false"}
DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}
"""Dtypes that inputs and outputs can have, by their names in safetensors files."""
_RESERVED = frozenset(("workload", "tf32", "direction"))
"""Names of axes that mean something else in pairbench."""
_LFS = b"version https://git-lfs"
PYTHON = frozenset(["python", "pytorch", "triton", "tilelang", "cute_dsl", "cutile", "cudnn_frontend"])
NATIVE = frozenset(["cpp", "cuda", "cuda_cpp", "cutlass", "cudnn", "cublas"])


class LeftOutError(SuiteError):
    """A workload or a solution cannot be taken; the problem can, unless it is raised beyond them."""


class Spec(NamedTuple):
    """An input or output: its shape in names of axes and numbers, None for a Python scalar."""

    shape: tuple[str | int, ...] | None
    dtype: str
    description: str


class Workload(NamedTuple):
    uuid: str
    sizes: dict[str, int]
    """The size of every axis, of constant and computed ones too."""
    inputs: dict[str, dict[str, Any]]
    """Descriptors by input: `random`, `scalar`, `safetensors` or `custom`; an input without one is random."""


class Solution(NamedTuple):
    path: Path
    definition: str
    name: str
    languages: tuple[str, ...]
    entry: str
    """The entry's file, as in the sources; empty where `path` is a Python file itself."""
    function: str
    into_outputs: bool | None
    """Whether it writes into outputs that are its last arguments; None where its signature tells."""
    sources: dict[str, str]
    options: dict[str, list[str]]

    @property
    def digest(self) -> str:
        sources = self.sources or {self.path.name: self.path.read_text(errors="replace")}
        texts = {name: code_of(text) if name.endswith(".py") else text for name, text in sources.items()}
        return digest_of([self.languages, self.entry, self.function, self.into_outputs, texts, self.options])


class Problem(Value):
    path: Path
    form: str
    name: str
    op_type: str
    axes: dict[str, int | str | None]
    """The value of a constant axis, the expression of a computed one, None for one that workloads give."""
    inputs: dict[str, Spec]
    outputs: dict[str, Spec]
    reference: str
    custom: str
    """The function of the reference that makes inputs of the kind `custom`; empty for none."""
    description: str

    @property
    def label(self) -> str:
        return label_of(self.path)

    @property
    def root(self) -> Path:
        """The folder that holds `definitions`, or that of a SOL-ExecBench problem."""
        folders = [one.parent for one in self.path.parents if one.name == "definitions"]
        return folders[0] if self.form == FLASHINFER and folders else self.path.parent

    @property
    def digest(self) -> str:
        """A digest of what the definition means: descriptions, tags and the order of its own keys are no part of it, that of inputs is."""
        specs = [
            [(name, spec.shape, spec.dtype) for name, spec in side.items()] for side in (self.inputs, self.outputs)
        ]
        return digest_of([self.name, self.op_type, self.form, self.axes, specs, code_of(self.reference), self.custom])

    def shape(self, spec: Spec, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
        return None if spec.shape is None else tuple(one if isinstance(one, int) else sizes[one] for one in spec.shape)

    def workloads(self, left_out: list[tuple[str, str]]) -> list[Workload]:
        """Return the workloads, in the order of the file, and add a sentence to `left_out` for each that cannot be taken."""
        pattern = "workload.jsonl" if self.form == SOL else f"workloads/**/{self.path.stem}.jsonl"
        file = next(iter(sorted(self.root.glob(pattern))), None)
        file = file or next(iter(sorted(self.root.glob(f"workloads/**/{self.name}.jsonl"))), None)
        if file is None:
            raise SuiteError(f"suite {self.label}: there is no {pattern} in {self.root}, expected its workloads there")
        found: dict[str, Workload] = {}
        for where, line in _lines(file):
            try:
                one = self._workload(_parsed(line, where), where)
            except LeftOutError as error:
                left_out.append(("workload", str(error)))
                continue
            if found.setdefault(one.uuid, one) is not one:
                why = f"the uuid {one.uuid!r} is that of an earlier line; give it its own"
                left_out.append(("workload", f"{where}: {why}"))
        if not found:
            why = left_out[-1][1] if left_out else f"{file.name} is empty"
            raise SuiteError(f"suite {self.label}: no workload can be taken: {why}")
        return list(found.values())

    def _workload(self, line: dict[str, Any], where: str) -> Workload:
        if (named := line.get("definition", self.name)) != self.name:
            raise LeftOutError(f"{where}: it is a workload of the definition {named!r}, expected {self.name!r}")
        given = _field(line, "workload", dict, where) if "workload" in line else line
        axes = _field(given, "axes", dict, where)
        inputs, sizes = _field(given, "inputs", dict, where), self._sizes(axes, where)
        for name, kind in inputs.items():
            if name not in self.inputs or not isinstance(kind, dict):
                expected = f"expected descriptors of {', '.join(self.inputs)}"
                raise LeftOutError(f"{where}: the input {name!r} is {kind!r:.60}, {expected}")
            self._check_descriptor(name, kind, sizes, where)
        return Workload(str(given.get("uuid") or digest_of(given)), sizes, inputs)

    def _check_descriptor(self, name: str, given: dict[str, Any], sizes: dict[str, int], where: str) -> None:
        kind, where = given.get("type", "random"), f"{where}: the input {name!r}"
        if kind == "custom" and self.custom:
            return
        if kind == "scalar":
            if "value" not in given or isinstance(given["value"], list | dict):
                raise LeftOutError(f"{where} is a scalar without a 'value', expected a number, true, false or null")
        elif kind == "safetensors":
            _field(given, "path", str, where)
            _field(given, "tensor_key", str, where)
            header, _ = blob_header(self.blob(given["path"], where), where)
            entry, spec = header.get(given["tensor_key"]), self.inputs[name]
            if not isinstance(entry, dict):
                known = ", ".join(key for key in header if key != "__metadata__")
                raise LeftOutError(f"{where}: its blob has no tensor {given['tensor_key']!r}, expected one of {known}")
            held = (DTYPES.get(str(entry.get("dtype"))), tuple(entry.get("shape") or ()))
            if held != (spec.dtype, self.shape(spec, sizes) or ()):
                expected = f"expected {spec.dtype} of {self.shape(spec, sizes)}"
                raise LeftOutError(f"{where}: its blob holds {held[0]} of {held[1]}, {expected}")
        elif kind != "random":
            expected = "expected random, scalar, safetensors, or custom with a custom_inputs_entrypoint"
            raise LeftOutError(f"{where} has the type {kind!r}, {expected}")

    def blob(self, path: str, where: str) -> Path:
        """Return a blob's file, looked for from the root on, and in a SOL-ExecBench problem from the folders above."""
        roots = [self.root, *(self.root.parents if self.form == SOL else ())]
        for root in roots:
            if (root / path).is_file():
                return root / path
        raise LeftOutError(f"{where}: its blob {path!r} is not in {self.root}; download it with the data set")

    def _sizes(self, given: Mapping[str, Any], where: str) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for name, rule in self.axes.items():
            if isinstance(rule, str):
                sizes[name] = _computed(rule, sizes, f"{where}: the axis {name!r}")
                continue
            value = given.get(name) if rule is None else rule
            if type(value) is not int or value < 0:
                raise LeftOutError(f"{where}: the axis {name!r} is {value!r}, expected a whole number, 0 or more")
            sizes[name] = value
        return sizes

    def solutions(self, against: str, left_out: list[tuple[str, str]]) -> list[Solution]:
        """Return the solutions of the data set, then the candidates in `against`, each under a name of its own."""
        found: dict[str, Solution] = {}
        sol = self.form == SOL
        inside = _by_definition((self.root if sol else self.root / "solutions").resolve())
        # All of a folder are for its one problem, and one of another name is a mistake to be told of.
        files = [one for name, several in inside.items() for one in several if sol or name == self.name]
        place = Path(against)
        if against and place.is_dir():
            files += _by_definition(place.resolve()).get(self.name, [])
        for file in dict.fromkeys(files):
            self._add(found, file, left_out, "solution")
        if against and place.is_file() and place.suffix == ".json":
            self._add(found, place, left_out, "candidate")
            return list(found.values())
        names = {self.name, self.path.parent.name if sol else self.path.stem}
        for file in [place] if place.is_file() else sorted(place.glob("*.py")) if against else ():
            name = file.stem if file == place else place.resolve().name
            if file == place or file.stem in names:
                found.pop(name, None)  # what is asked for comes last
                found[name] = Solution(file, self.name, name, ("python",), "", "run", None, {}, {})
        return list(found.values())

    def _add(self, found: dict[str, Solution], file: Path, left_out: list[tuple[str, str]], kind: str) -> None:
        try:
            one = read_solution(file)
        except LeftOutError as error:
            left_out.append((kind, str(error)))
            return
        same = found.get(one.name)
        if one.definition != self.name:
            left_out.append((kind, f"{file.name}: it is for {one.definition!r}, not for {self.name!r}"))
        elif same and same.path.resolve() != file.resolve() and kind != "candidate":
            left_out.append((kind, f"{file.name}: {one.name!r} is the name of {same.path.name}, too"))
        else:  # likewise, though it may be in the data set
            found.pop(one.name, None)
            found[one.name] = one


def is_definition(path: Path) -> bool:
    """Return whether a file is a definition by where it lies."""
    if path.suffix != ".json":
        return False
    if path.name == "definition.json":
        return any((path.parent / name).is_file() for name in ("workload.jsonl", "reference.py"))
    above = [one.parent for one in path.absolute().parents if one.name == "definitions"]
    return any((root / "workloads").is_dir() or (root / "solutions").is_dir() for root in above)


def read_problem(path: Path) -> Problem:
    """Read and check a definition; raise a SuiteError where it cannot be taken."""
    where = f"suite {label_of(path)}"
    try:
        document = _document(path)
        form = SOL if path.name == "definition.json" else FLASHINFER
        name = _field(document, "name", str, where)
        axes: dict[str, int | str | None] = {}
        for axis, given in _field(document, "axes", dict, where).items():
            axes[axis] = _axis(given, f"{where}: the axis {axis!r}")
        beside = path.parent / "reference.py"
        if form == SOL and "reference" not in document and beside.is_file():
            document["reference"] = beside.read_text(encoding="utf-8", errors="replace")
        reference = _field(document, "reference", str, where)
        sides = [
            {
                key: _spec(one, axes, f"{where}: {side} {key!r}")
                for key, one in _field(document, side, dict, where).items()
            }
            for side in ("inputs", "outputs")
        ]
    except LeftOutError as error:
        raise SuiteError(str(error)) from None
    if "def run" not in reference:
        raise SuiteError(f"{where}: 'reference' defines no function run, expected Python source with def run(...)")
    if not all(sides):
        raise SuiteError(f"{where}: it has no {'inputs' if sides[1] else 'outputs'}, expected at least one")
    return Problem(
        path=path,
        form=form,
        name=name,
        op_type=str(document.get("op_type") or ""),
        axes=axes,
        inputs=sides[0],
        outputs=sides[1],
        reference=reference,
        custom=str(document.get("custom_inputs_entrypoint") or ""),
        description=" ".join(str(document.get("description") or "").split()),
    )


def label_of(path: Path) -> str:
    """Return the name of a definition's file in messages, with the folder of a SOL-ExecBench problem, whose files are all called alike."""
    return f"{path.parent.name}/{path.name}" if path.name == "definition.json" else path.name


def axis_name(name: str) -> str:
    """Return the name that an axis of a definition has in cases."""
    return f"axis_{name}" if name in _RESERVED else name


def read_solution(path: Path) -> Solution:
    """Read and check a solution; raise a LeftOutError where it cannot be taken, whatever the machine."""
    document, where = _document(path), path.name
    spec = _field(document, "spec", dict, where)
    languages = spec.get("languages") or [spec.get("language")]
    sources = {}
    for one in _field(document, "sources", list, where):
        if not isinstance(one, dict):
            raise LeftOutError(f"{where}: a source is {one!r:.60}, expected an object with path and content")
        source = _field(one, "path", str, where)
        if Path(source).is_absolute() or ".." in Path(source).parts:
            raise LeftOutError(f"{where}: the source {source!r} lies outside of its folder, expected a relative path")
        sources[Path(source).as_posix()] = _field(one, "content", str, where)
    entry, _, function = _field(spec, "entry_point", str, where).partition("::")
    if entry not in sources or not function:
        expected = f"expected file::function with one of {', '.join(sources) or 'the sources'}"
        raise LeftOutError(f"{where}: entry_point is {spec['entry_point']!r}, {expected}")
    if unknown := [one for one in languages if not isinstance(one, str) or one not in PYTHON | NATIVE]:
        raise LeftOutError(
            f"{where}: language {unknown[0]!r} is unknown, expected {', '.join(sorted(PYTHON | NATIVE))}"
        )
    native = not PYTHON.issuperset(languages)
    sol = "languages" in spec
    if native and (spec.get("binding") or ("torch" if sol else "tvm-ffi")) != "torch":
        why = "which pairbench does not build; expected torch, with PYBIND11_MODULE in its source"
        raise LeftOutError(f"{where}: its binding is tvm-ffi, {why}")
    options = spec.get("compile_options") or {}
    return Solution(
        path=path,
        definition=_field(document, "definition", str, where),
        name=_field(document, "name", str, where),
        languages=tuple(languages),
        entry=entry,
        function=function,
        into_outputs=_field({"destination_passing_style": True, **spec}, "destination_passing_style", bool, where),
        sources=sources,
        options={name: list(map(str, options.get(name) or [])) for name in ("cflags", "cuda_cflags", "ld_flags")},
    )


def traces_of(problem: Problem) -> Iterator[dict[str, Any]]:
    """Yield the evaluated traces of a definition that can be read; they are claims, so what cannot be read is no matter."""
    for file in sorted(problem.root.glob(f"traces/**/{problem.name}.jsonl")):
        for _, line in _lines(file):
            try:
                one = json.loads(line)
                if one["evaluation"]["status"] == "PASSED" and one["definition"] == problem.name:
                    yield one
            except (ValueError, KeyError, TypeError):
                continue


def blob_header(path: Path, where: str) -> tuple[dict[str, Any], int]:
    """Return the header of a safetensors file, and where its data begin, in bytes."""
    try:
        with path.open("rb") as file:
            start = file.read(len(_LFS))
            if start == _LFS:
                raise LeftOutError(f"{where}: its blob {path.name} is a pointer of Git LFS; fetch it by `git lfs pull`")
            length = int.from_bytes(start[:8], "little")
            if length > path.stat().st_size - 8:
                raise LeftOutError(f"{where}: its blob {path.name} is no safetensors file, or is cut short")
            file.seek(8)
            return dict(json.loads(file.read(length))), 8 + length
    except (OSError, ValueError, RecursionError) as error:
        raise LeftOutError(f"{where}: its blob {path.name} cannot be read: {error}") from None


def digest_of(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, default=str).encode()).hexdigest()[:16]


def code_of(text: str) -> str:
    """Return Python source without its formatting; other text as it is."""
    try:
        return ast.dump(ast.parse(text))
    except (SyntaxError, ValueError):  # which is said where it is loaded
        return text


@functools.lru_cache(maxsize=64)
def _by_definition(folder: Path) -> dict[str, list[Path]]:
    """Return the solutions in a folder and below by the definition that they are for; one that cannot be read by its own and its folder's name."""
    found: dict[str, list[Path]] = {}
    for file in sorted(folder.rglob("*.json")):
        if file.name == "definition.json":
            continue
        try:
            document = _document(file)
            names = [document["definition"]] if "sources" in document else []
        except (LeftOutError, KeyError):
            names = [file.parent.name, file.stem]  # its problem says what is wrong with it
        for name in names:
            found.setdefault(str(name), []).append(file)
    return found


def _lines(file: Path) -> Iterator[tuple[str, str]]:
    """Yield each line that is not empty, after where it is."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise LeftOutError(f"{file.name}: cannot be read: {error}") from None
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield f"{file.name}, line {number}", line


def _document(path: Path) -> dict[str, Any]:
    try:
        return _parsed(path.read_text(encoding="utf-8"), path.name)
    except (OSError, UnicodeDecodeError) as error:
        raise LeftOutError(f"{path.name}: cannot be read: {error}") from None


def _parsed(text: str, where: str) -> dict[str, Any]:
    if text.startswith(_LFS.decode()):
        raise LeftOutError(f"{where}: it is a pointer of Git LFS; fetch the file by `git lfs pull`")
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise LeftOutError(f"{where}: no JSON at line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise LeftOutError(f"{where}: its JSON is nested too deeply") from None
    if not isinstance(found, dict):
        raise LeftOutError(f"{where}: it is {type(found).__name__} in JSON, expected an object")
    return found


def _field(holder: Mapping[str, Any], name: str, kind: type, where: str) -> Any:
    value = holder.get(name)
    if not isinstance(value, kind):
        state = f"is {value!r:.60}" if name in holder else "is missing"
        raise LeftOutError(f"{where}: the key {name!r} {state}, expected {_KINDS[kind]}")
    return value


def _axis(given: Any, where: str) -> int | str | None:
    kind = given.get("type") if isinstance(given, dict) else None
    if kind == "const" and type(given.get("value")) is int and given["value"] >= 0:
        return int(given["value"])
    if kind == "expr" and isinstance(given.get("expression"), str):
        return str(given["expression"])
    if kind != "var":
        expected = "expected type const with a value of 0 or more, var, or expr with an expression"
        raise LeftOutError(f"{where} is {given!r:.80}, {expected}")
    return None


def _spec(given: Any, axes: Mapping[str, Any], where: str) -> Spec:
    if not isinstance(given, dict) or "shape" not in given:
        raise LeftOutError(f"{where} is {given!r:.80}, expected an object with shape and dtype")
    shape, dtype = given["shape"], given.get("dtype")
    if not isinstance(dtype, str) or dtype not in DTYPES.values():
        raise LeftOutError(
            f"{where} has the dtype {dtype!r}, which cannot be taken; expected {', '.join(DTYPES.values())}"
        )
    if shape is not None and not isinstance(shape, list):
        raise LeftOutError(f"{where} has the shape {shape!r:.60}, expected a list of axes, or null for a Python scalar")
    sizes = [int(one) if isinstance(one, str) and one.isdecimal() else one for one in shape or ()]
    if unknown := [one for one in sizes if type(one) is not int and not (isinstance(one, str) and one in axes)]:
        raise LeftOutError(f"{where} has the axis {unknown[0]!r}, expected one of {', '.join(axes)}")
    return Spec(None if shape is None else tuple(sizes), dtype, str(given.get("description") or ""))


_OPERATIONS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


def _computed(expression: str, sizes: Mapping[str, int], where: str) -> int:
    """Return the value of an arithmetic expression of the axes before it; it is parsed, and never evaluated as Python."""

    def value(node: ast.AST) -> Any:
        match node:
            case ast.Constant(value=int()):
                return node.value
            case ast.Name() if node.id in sizes:
                return sizes[node.id]
            case ast.BinOp() if type(node.op) in _OPERATIONS:
                return _OPERATIONS[type(node.op)](value(node.left), value(node.right))
            case ast.UnaryOp() if type(node.op) in _OPERATIONS:
                return _OPERATIONS[type(node.op)](value(node.operand))
            case ast.Call(func=ast.Name(id="min" | "max" as name), keywords=[]) if node.args:
                return (min if name == "min" else max)(map(value, node.args))
        raise ValueError(f"{ast.unparse(node)!r} is neither an axis before it nor arithmetic")

    try:
        found = value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ArithmeticError, RecursionError) as error:
        raise LeftOutError(f"{where} is {expression!r}: {error}") from None
    if found != int(found) or found < 0:
        raise LeftOutError(f"{where} is {expression!r}, which is {found}, expected a whole number, 0 or more")
    return int(found)
