"""The suite that is written from what a program called: an operator for each class or function, with its calls as cases.

The text holds no names of models: what it imports and calls is what was recorded.
"""

import builtins
import keyword
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pairbench.suite.captured import (
    RefusedError,
    Seen,
    float_dtypes,
    group_of,
    is_tensor,
    kind_of,
    leaves,
    needs_graph,
    packed,
    short,
    stride_of,
)

_COVERED = 0.95  # of the time, after which the remaining operators are named in a comment
_NAMED = 8  # of these in the comment
_LETTERS = ("x", "y", "z")


class Written(NamedTuple):
    text: str
    operators: tuple[tuple[str, float], ...]
    """Names of the operators, each with its share of the time."""
    rest: tuple[str, ...]
    """Sentences on the time that no operator stands for."""


def written(seen: Seen, path: Path, *, steps: float = 1, program: str = "") -> Written:
    """Return the suite to be written to a file: an operator for each class or function that takes much of the time, and its calls as cases.

    Args:
        seen: What the program called.
        path: The file that the suite will be in; imports of the program's own modules are relative to it.
        steps: The number of steps that the program made: weights are calls a step.
        program: The command, for the suite's first line.
    """
    groups, refused = defaultdict[str, list[dict[str, Any]]](list), Counter[str]()
    for call in seen.calls:
        try:
            groups[group_of(call, trained=bool(seen.backwards))].append(call)
        except RefusedError as why:
            refused[f"{short(call['name'])}: {why}"] += round(seen.ns(call))
    ordered = sorted(groups.values(), key=lambda calls: -sum(map(seen.ns, calls)))
    texts, operators, small, covered = list[str](), list[tuple[str, float]](), Counter[str](), 0.0
    names = set[str]()
    imports, goal = Imports(path, names), _COVERED * (seen.total_ns - sum(refused.values()))
    for calls in ordered:
        ns = sum(map(seen.ns, calls))
        if covered >= goal or not ns:
            small[short(calls[0]["name"])] += round(ns)
            continue
        one = OperatorText(calls, imports, names, seen)
        try:
            texts.append(one.text(ns / seen.total_ns, steps))
        except RefusedError as why:
            refused[f"{short(calls[0]['name'])}: {why}"] += round(ns)
            continue
        covered += ns
        operators.append((one.name, ns / seen.total_ns))
    for name, ns in seen.device_ns.items():
        if name.startswith("kernel "):
            refused[f"{name[:80]}: launched by no call that was recorded"] += ns
    rest = tuple(_rest(seen, small, refused))
    unit = f"{seen.total_ns / steps / 1e6:,.3f} ms of {'device' if seen.busy_ns else 'host'} time"
    about = f"Calls of `{program or 'a program'}`, captured by pairbench {f'on {seen.device} ' if seen.device else ''}with torch {seen.torch}."
    each = "a step" if steps != 1 else "in all"
    share = f"The program took {unit} {each}, and {covered / seen.total_ns:.1%} of it are calls of these operators."
    ranks = f" {seen.processes} processes are added up." if seen.processes > 1 else ""
    told = "\n".join([about, "", f"{share}{ranks} `weight` is the number of calls {each}.", *rest])
    told = told.replace("\\", "\\\\").replace('"""', "'''")
    return Written("\n\n\n".join([f'"""{told}\n"""\n\n{imports.text()}', *texts]) + "\n", tuple(operators), rest)


def _rest(seen: Seen, small: Counter[str], refused: Counter[str]) -> Iterator[str]:
    if small:
        listed = ", ".join(name for name, _ in small.most_common(_NAMED)) + (", ..." if len(small) > _NAMED else "")
        yield f"{small.total() / seen.total_ns:.1%} in {len(small)} small operators: {listed}."
    for why, ns in refused.most_common(_NAMED):
        yield f"{ns / seen.total_ns:.1%} in {why}."
    if len(refused) > _NAMED:
        others = sum(ns for _, ns in refused.most_common()[_NAMED:])
        yield f"{others / seen.total_ns:.1%} in {len(refused) - _NAMED} others that are not declared."
    yield from (f"Not told apart: {count:,} {what}." for what, count in seen.left_out.items())


class Imports:
    """The modules that a suite imports, and the names that it uses them by."""

    def __init__(self, suite: Path, taken: set[str]) -> None:
        self._folder, self._names, self._folders = suite.resolve().parent, dict[tuple[str, str], str](), set[str]()
        self.views, self._taken = False, taken

    @property
    def names(self) -> list[str]:
        return [*self._names.values()]

    def name(self, of: str, folder: str) -> str:
        """Return the name by which a class or function `module:qualname` is used, from a folder unless it is installed."""
        module, _, qualified = of.partition(":")
        if module in ("torch", "builtins") or module.startswith("torch."):
            return qualified if module == "builtins" else f"{module}.{qualified}"
        if module == "__main__":
            file = Path(folder)
            if not folder or not re.search(r"^if __name__ ==", file.read_text(errors="replace"), re.MULTILINE):
                raise RefusedError(
                    "declared in the program itself, which cannot be imported without `if __name__ == '__main__'`"
                )
            module, folder = file.stem, str(file.parent)
        if "<" in qualified:
            raise RefusedError(f"{qualified} is local to a function, so it cannot be imported")
        if folder:
            self._folders.add(os.path.relpath(folder, self._folder))
        outer, _, inner = qualified.partition(".")
        name = self._names.get((module, outer)) or _free(outer, {*self._names.values(), *self._taken})
        self._names[module, outer] = name
        return f"{name}.{inner}" if inner else name

    def text(self) -> str:
        own = [f'sys.path.insert(0, str(Path(__file__).resolve().parent / "{one}"))' for one in sorted(self._folders)]
        late = "  # noqa: E402 (found by the line above)" if own else ""
        named = [
            f"from {module} import {outer}{f' as {name}' if name != outer else ''}{late}"
            for (module, outer), name in sorted(self._names.items())
        ]
        ours = ["from pairbench import REASSOCIATED, Operator, Variant", *([_VIEW] if self.views else [])]
        if not own:
            return "\n".join(["import torch", *named, "", *ours])
        return "\n".join(
            ["import sys", "from pathlib import Path", "", "import torch", "", *ours[:1], "", *own, *named, *ours[1:]]
        )


_VIEW = '''

def view(draw, shape, stride, **values):
    """Return a tensor of that shape and those strides, whose memory `draw` has filled."""
    size = 1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))
    return draw(size, **values).as_strided(shape, stride)'''


_RESERVED = {"make", "dtype", "weight", "direction", "tf32", "module", "torch", "view", *keyword.kwlist, *dir(builtins)}


class OperatorText:
    """The text of one operator: the call, its inputs, and the declaration with its cases."""

    def __init__(self, calls: Sequence[dict[str, Any]], imports: Imports, taken: set[str], seen: Seen) -> None:
        self._calls, self._imports = sorted(calls, key=lambda call: -seen.ns(call)), imports
        self._first = self._calls[0]
        self._trained = needs_graph(self._first) and bool(seen.backwards)
        self._axes: list[dict[str, Any]] = [{} for _ in calls]
        self._joinable = list[str]()  # axes of whole numbers among the arguments of the module's class
        self._before = list[str]()  # lines of the inputs function
        self._gradients = [f"module.{name}" for name in self._first.get("learned", ())] if self._trained else []
        dtypes = [float_dtypes(call) for call in self._calls]
        self._one_dtype = all(len(several) == 1 for several in dtypes)
        if self._one_dtype:
            self._axis("dtype", [several.pop() for several in dtypes])
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", short(self._first["name"])).lower()
        words = re.sub(r"\W", "_", words).strip("_") or "call"
        self.name = _free(f"{words}_training" if self._trained else words, {*taken, *imports.names, *_RESERVED})
        taken.add(self.name)

    def text(self, share: float, steps: float) -> str:
        first, is_module = self._first, self._first["kind"] == "module"
        named = self._arguments(first)
        inputs, given = {"module": self._module()} if is_module else {}, list[str]()
        for place, (name, told, by_name) in enumerate(named):
            several = [self._arguments(call)[place][1] for call in self._calls]
            placed = any(is_tensor(one) or one == ["device"] for _, one in leaves(told))
            if placed or any(one != told for one in several):
                inputs[name] = self._value(name, several)
                value = name
            else:
                value = self._value(name, [told])
            given.append(f"{by_name}={value}" if by_name else value)
        called = "module" if is_module else first["name"]
        if declared := first.get("declared"):
            self._imports.name(declared, first["folder"])
        body = [f"return {called}({', '.join(given)})"]
        if first["autocast"]:
            device, dtype = first["autocast"]
            body = [f'with torch.autocast("{device}", torch.{dtype}):', f"    {body[0]}"]
        written = sorted(name for n, (name, _, key) in enumerate(named) if (key or n) in first.get("writes", ()))
        if written and self._gradients:
            raise RefusedError("writes into an input of a graph")
        consumes = f"consumes={written!r}" if written else ""
        self._join()
        axes = list(dict.fromkeys(axis for case in self._axes for axis in case))
        count = sum(call["count"] for call in self._calls)
        kind = ", ".join(filter(None, ["compiled=True", 'kind="library"', consumes]))
        lines = [
            f"# {share:.1%} of the time: {count:,} calls of {short(first['name'])}",
            *(f"def {self.name}_call({', '.join(inputs)}):", *(f"    {line}" for line in body), "", ""),
            *(f"def {self.name}_inputs({', '.join(['make', *axes])}):", *(f"    {line}" for line in self._before)),
            *("    return {", *(f'        "{name}": {value},' for name, value in inputs.items()), "    }", "", ""),
            *(f"{self.name} = Operator(", f'    "{self.name}",', f"    baseline={self.name}_call,"),
            f'    variants={{"compiled": Variant({self.name}_call, {kind})}},',
            *(f"    inputs={self.name}_inputs,", '    cases={"smoke": [', *self._cases(steps), "    ]},"),
            *([f"    gradients={self._gradients!r},"] if self._gradients else []),
            *([f"    {consumes},"] if consumes else []),
            *("    tolerance=REASSOCIATED,", f'    source="captured: {first["name"]}",', ")"),
        ]
        return "\n".join(lines)

    def _arguments(self, call: Mapping[str, Any]) -> list[tuple[str, Any, str]]:
        """Return the name, the form and the keyword of each argument of a call; the keyword is empty for one by position."""
        names = [
            *call["names"],
            *_LETTERS[len(call["names"]) :],
            *(f"argument_{n}" for n in range(len(call["args"][1]))),
        ]
        given = [(name, told, "") for name, told in zip(names, call["args"][1], strict=False)]
        found, used = list[tuple[str, Any, str]](), {"module", "make", *keyword.kwlist}
        for name, told, by_name in (*given, *((name, told, name) for name, told in call["kwargs"][1].items())):
            found.append((_free(name, used), told, by_name))
            used.add(found[-1][0])
        return found

    def _module(self) -> str:
        first = self._first
        made = [call["made"][1] for call in self._calls]
        if "*" in first["made"][1]:
            raise RefusedError("its class takes any number of arguments")
        given, usual = list[str](), set.intersection(*({*call["made"][2]} for call in self._calls))
        for name in first["made"][1]:
            values = [one[name] for one in made]
            if name in usual:
                continue
            given.append(f"{name}={self._value(name, values)}")
            if all(type(one) is int for one in values) and len({*values}) > 1:
                self._joinable.append(given[-1].partition("=")[2])
        more = [f"dtype={self._dtype('module', [call['dtype'] for call in self._calls])}"] if first["dtype"] else []
        more += ["training=True"] if first["training"] else []
        more += [f"elements={first['elements']}"] if len({call["elements"] for call in self._calls}) == 1 else []
        call = f"{self._imports.name(first['name'], first['folder'])}({', '.join(given)})"
        self._before += ["module = make.module(", *(f"    {one}," for one in (f"lambda: {call}", *more)), ")"]
        return "module"

    def _axis(self, name: str, values: Sequence[Any]) -> str:
        """Add an axis with its value in each call, and return its name, which no other axis has."""
        free = _free(f"{name}_shape" if name in _RESERVED - {"dtype"} else name, {*self._axes[0]})
        for case, value in zip(self._axes, values, strict=True):
            case[free] = value
        return free

    def _value(self, name: str, several: Sequence[Any]) -> str:
        """Return the expression of an argument of all calls: what differs between them is an axis."""
        told = several[0]
        if is_tensor(told):
            return self._tensor(name, [one[1] for one in several])
        if isinstance(told, list) and told[0] in ("list", "tuple"):
            places = range(len(told[1]))
            items = [self._value(f"{name}_{place}", [one[1][place] for one in several]) for place in places]
            return f"[{', '.join(items)}]" if told[0] == "list" else f"({''.join(f'{one}, ' for one in items)[:-1]})"
        if isinstance(told, list) and told[0] == "dict":
            pairs = (f"{key!r}: {self._value(f'{name}_{key}', [one[1][key] for one in several])}" for key in told[1])
            return f"{{{', '.join(pairs)}}}"
        if all(one == told and type(one) is type(told) for one in several):
            return self._literal(told)
        return self._axis(name, several)

    def _tensor(self, name: str, several: Sequence[dict[str, Any]]) -> str:
        told = several[0]
        if told.get("needs_grad") and self._trained:
            self._gradients.append(name)
        shapes = [tuple(one["shape"]) for one in several]
        shape = self._axis(name, shapes) if shapes[0] else "()"
        draw, values = "normal", f"dtype={self._dtype(name, [one['dtype'] for one in several])}"
        if "scale" in told:
            values += f", mean={told['mean']:.3g}, scale={told['scale']:.3g}"
        if kind_of(told["dtype"]) != "float":
            low, high = min(one.get("low", 0) for one in several), min(one.get("high", 1) for one in several)
            draw, values = "integers", f"low={min(low, high)}, high={high + 1}, {values}"
        if draw == "normal" and (place := packed(self._first).get(told.get("storage", 0))):
            if not any(line.startswith(place.name) for line in self._before):
                self._before.append(f"{place.name} = make.normal({place.size}, {values})")
            return f"{place.name}.as_strided({shape}, {tuple(stride_of(told))}, {told['offset'] - place.offset})"
        if "stride" in told:
            self._imports.views = True
            strides = self._axis(f"{name}_stride", [tuple(one["stride"]) for one in several])
            return f"view(make.{draw}, {shape}, {strides}, {values})"
        return f"make.{draw}(*{shape}, {values})"

    def _dtype(self, name: str, dtypes: Sequence[str]) -> str:
        if self._one_dtype and kind_of(dtypes[0]) == "float":
            return "dtype"
        return f'"{dtypes[0]}"' if len({*dtypes}) == 1 else self._axis(f"{name}_dtype", dtypes)

    def _literal(self, told: Any) -> str:
        """Return the expression of an argument that is neither a tensor nor a collection."""
        if not isinstance(told, list):
            return repr(told) if told not in (float("inf"), float("-inf")) else f'float("{told}")'
        kind, *of = told
        match kind:
            case "device":
                return "make.device"
            case "enum":
                return f"{self._imports.name(of[0], '')}.{of[1]}"
            case "name":
                return self._imports.name(of[0], "")
            case "from_dict":
                return f"{self._imports.name(of[0], '')}.from_dict({of[1]!r})"
        return str(of[0])

    def _join(self) -> None:
        """Make one case of modules that only a number tells apart which counts them, such as the index of a layer."""
        for axis in self._joinable:
            groups = defaultdict[str, list[int]](list)
            for place, case in enumerate(self._axes):
                rest = {name: value for name, value in case.items() if name != axis}
                groups[repr([rest, self._calls[place]["elements"]])].append(place)
            numbers = [sorted(self._axes[place][axis] for place in places) for places in groups.values()]
            if all(one == [*range(one[0], one[0] + len(one))] for one in numbers) and max(map(len, numbers)) > 1:
                for places in groups.values():
                    for place in places:
                        self._axes[place][axis] = self._axes[places[0]][axis]

    def _cases(self, steps: float) -> Iterator[str]:
        counts = Counter[tuple[tuple[str, Any], ...]]()
        for call, axes in zip(self._calls, self._axes, strict=True):
            counts[tuple(axes.items())] += call["count"]
        direction = [("direction", "fwd_bwd")] if self._gradients else []
        for of_case, count in counts.items():
            weight = count / steps
            pairs = [*of_case, *direction, ("weight", int(weight) if weight == int(weight) else round(weight, 4))]
            yield f"        dict({', '.join(f'{name}={value!r}' for name, value in pairs)}),"


def _free(name: str, used: set[str]) -> str:
    """Return a name, or the name with a number behind, that is not used."""
    name = name if name.isidentifier() else f"argument_{re.sub(r'[^A-Za-z0-9_]', '_', name)}"
    count, free = 1, name
    while free in used:
        count += 1
        free = f"{name}_{count}"
    return free
