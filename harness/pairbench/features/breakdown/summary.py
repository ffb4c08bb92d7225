"""A breakdown added up by module, by kind of work, by kernel and by line of code.

The kind of a piece follows from the names of its operators, its kernel and its module.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from pairbench.model.breakdown import Breakdown, SourceLine, WorkTotal
from pairbench.model.plain import grouped

KINDS = (
    *("attention", "norm", "matmul", "convolution", "cache", "copy", "elementwise", "other"),
    *("compiled", "host", "unknown"),
)
"""The kinds of work: `copy` includes casts; `compiled` is compiled for a CPU, where kernels have no telling names; `host` is a CPU's time
between operators, in Python; `unknown` has no known operator and no telling kernel name."""

# The outermost operator decides: a copy within a convolution or an einsum belongs to it.
_OPERATORS = (
    ("attention", r"scaled_dot_product|multi_head_att|(flash|efficient|cudnn|flex)_attention"),
    ("norm", r"(layer|group|batch|instance|rms)_?norm|linalg_vector_norm"),
    ("convolution", r"conv"),
    ("matmul", r"^_?(addmm|mm|bmm|baddbmm|scaled_mm|grouped_mm|addbmm)"),
    ("matmul", r"^_?(matmul|linear|einsum|addmv|mv|dot|tensordot)"),
    ("cache", r"^(index_copy|index_put|_index_put_impl|slice_scatter|scatter|masked_scatter)"),
    ("copy", r"^(_?to(_copy)?|copy|clone|contiguous|cat|concat|stack)(_|$)"),
    ("copy", r"^(roll|constant_pad|pad|repeat|type_as|reshape|flatten)(_|$)"),
    ("other", r"^(embedding|index|gather|sort|topk|nonzero|arange|cumsum|item|_local_scalar_dense|rand)"),
    ("other", r"^(normal|uniform|empty|view|slice|select|as_strided|expand|permute|transpose|t$)"),
    ("other", r"^((un)?squeeze|chunk|split|unbind|narrow|unflatten)"),
)
# For kernels without an operator: launched by Python, or in a graph.
_KERNELS = (
    # What inductor fuses is named after everything in it.
    ("norm", r"^triton_(poi|per|red)_\w*(rsqrt|norm)"),
    ("elementwise", r"^triton_(poi|per|red)_"),
    ("attention", r"flash|fmha|sdpa|attention|attn"),
    ("norm", r"(layer|group|batch|instance|rms)_?norm|norm_kernel|_norm_"),
    ("convolution", r"conv|fprop|dgrad|wgrad|winograd|nchwtonhwc|nhwctonchw|vol2col|im2col"),
    ("matmul", r"gemm|gemv|nvjet|cutlass|cublas|matmul|splitk|xmma|_mm_|(?<!bi)linear|ffn"),
    ("cache", r"cache"),
    ("copy", r"memcpy|direct_copy|copy_kernel|catarray|transpose|_to_copy|_clone_|constant_pad|_copy_|_cat_"),
    ("elementwise", r"elementwise|pointwise|memset|fill|rope|modulat|gate|reduce_kernel"),
)
_COMPILED = re.compile(r"^(Torch-Compiled Region|CompiledFunction|## )")
_COMPILER = re.compile(r"^(TorchDynamo|Pregraph|AOTDispatcher)")  # the compiler's own work
_ATTENTION = re.compile(r"att(n|ention)", re.IGNORECASE)
# Attention written by hand; its projections are `linear` and `mm`.
_INNER_PRODUCT = re.compile(r"^(bmm|baddbmm|matmul|einsum|softmax|_softmax)")
_Naming = Callable[[WorkTotal], str]
# The largest difference between parts and whole that is not remarked on; reading a CPU's clock takes time, too.
_AGREES, _AGREES_NS = 0.05, 20_000.0


def kind_of(piece: WorkTotal, spots: tuple[SourceLine, ...], classes: Mapping[str, str]) -> str:
    """Return the kind of a piece of a breakdown; `spots` are the source lines that `piece.spot` indexes, `classes` the class of each module."""
    if piece.spot is not None and spots[piece.spot].what != "sync":
        return "cache" if spots[piece.spot].what == "cache" else "copy"
    ops = [name for name in piece.ops if not _COMPILED.search(name) and not _COMPILER.search(name)]
    if not ops:
        compiled = piece.kernel is None and piece.ops and _COMPILED.search(piece.ops[-1])
        return "compiled" if compiled else _kind_of_kernel(piece)
    by_operator = next((kind for name in ops for kind, pattern in _OPERATORS if re.search(pattern, name)), None)
    if by_operator in ("attention", "norm", "convolution", "cache", "copy"):
        return by_operator
    own = f"{piece.module.rpartition('.')[2]} {classes.get(piece.module, '')}"
    if "norm" in own.lower() and by_operator is None:
        return "norm"
    if _ATTENTION.search(own) and _INNER_PRODUCT.search(ops[0]):
        return "attention"
    if by_operator is not None:
        return by_operator
    if "::" in ops[0]:  # an operator of the suite's own may be anything; its name, or else its kernel's, may tell
        return _named(ops[0]) or _kind_of_kernel(piece)
    return "elementwise"


def _kind_of_kernel(piece: WorkTotal) -> str:
    if piece.kernel is None:
        return "host"
    return _named(piece.kernel) or ("other" if piece.known else "unknown")


def _named(name: str) -> str | None:
    return next((kind for kind, pattern in _KERNELS if re.search(pattern, name, re.IGNORECASE)), None)


@dataclass(kw_only=True)
class Node:
    """A module, or several alike in a list of modules, with everything below."""

    label: str
    class_name: str = ""  # empty for the whole call and for lists of modules, which are never called themselves
    calls: int = 0
    ns: float = 0.0
    own_ns: float = 0.0
    count: int = 0
    launches: int = 0
    kinds: dict[str, float] = field(default_factory=dict)
    children: "list[Node]" = field(default_factory=list)

    def add(self, piece: WorkTotal, kind: str) -> None:
        self.ns += piece.ns
        self.count += piece.count
        self.launches += piece.launches
        self.kinds[kind] = self.kinds.get(kind, 0.0) + piece.ns

    def child(self, label: str) -> "Node":
        if (node := next((one for one in self.children if one.label == label), None)) is None:
            self.children.append(node := Node(label=label))
        return node


@dataclass(frozen=True)
class BreakdownRow:
    name: str
    kind: str
    count: int
    launches: int
    ns: float


class SpotTime(NamedTuple):
    spot: SourceLine
    ns: float | None  # None where the share of the work is unknown
    waits: int


def parts_ns(breakdown: Breakdown) -> float:
    return sum(piece.ns for piece in breakdown.pieces)


def off_by(breakdown: Breakdown) -> float | None:
    return abs(parts_ns(breakdown) / breakdown.whole_ns - 1) if breakdown.whole_ns else None


def agrees(breakdown: Breakdown) -> bool:
    return abs(parts_ns(breakdown) - breakdown.whole_ns) <= max(_AGREES * breakdown.whole_ns, _AGREES_NS)


def unknown_part(breakdown: Breakdown) -> float:
    return sum(piece.ns for piece in breakdown.pieces if not piece.known) / (parts_ns(breakdown) or 1.0)


def _kinds(breakdown: Breakdown) -> _Naming:
    classes = {module.name: module.class_name for module in breakdown.modules}
    return lambda piece: kind_of(piece, breakdown.spots, classes)


def by_kind(breakdown: Breakdown) -> list[BreakdownRow]:
    kind = _kinds(breakdown)
    return sorted(_rows(breakdown.pieces, kind, kind), key=lambda row: (-row.ns, KINDS.index(row.kind)))


def by_kernel(breakdown: Breakdown) -> list[BreakdownRow]:
    """Return the kernels, or a CPU's operators, the longest first."""
    pieces = [piece for piece in breakdown.pieces if piece.kernel or piece.ops]
    rows = _rows(pieces, lambda piece: piece.kernel or piece.ops[-1], _kinds(breakdown))
    return sorted(rows, key=lambda row: -row.ns)


def _rows(pieces: Iterable[WorkTotal], name: _Naming, kind: _Naming) -> list[BreakdownRow]:
    groups = grouped(((name(piece), kind(piece)), piece) for piece in pieces)
    return [
        BreakdownRow(*key, *(sum(getattr(piece, total) for piece in group) for total in ("count", "launches", "ns")))
        for key, group in groups.items()
    ]


def by_line(breakdown: Breakdown) -> list[SpotTime]:
    """Return the lines that copy, cast and wait: waits first, then the longest."""
    spots = []
    for index, spot in enumerate(breakdown.spots):
        times = [piece.ns for piece in breakdown.pieces if piece.spot == index]
        waits = sum(wait.count for wait in breakdown.waits if wait.spot == index)
        spots.append(SpotTime(spot=spot, ns=sum(times) if times else None, waits=waits))
    return sorted(spots, key=lambda item: (item.spot.what != "sync" and not item.waits, -(item.ns or 0.0)))


def tree_of(breakdown: Breakdown, *, alike_together: bool = True) -> Node:
    """Return the tree of modules below the whole call; neighbours of one class in a list, as the blocks of a network, are added up."""
    root = Node(label="the whole call", calls=1)
    for module in breakdown.modules:
        node = root
        for label in module.name.split("."):
            node = node.child(label)
        node.class_name, node.calls = module.class_name, module.calls
    kind = _kinds(breakdown)
    for piece in breakdown.pieces:
        node = root
        node.add(piece, kind(piece))
        for label in piece.module.split(".") if piece.module else ():
            node = node.child(label)
            node.add(piece, kind(piece))
        node.own_ns += piece.ns
    return _shortened(root, alike_together)


def _shortened(node: Node, alike_together: bool) -> Node:
    children = [_shortened(child, alike_together) for child in node.children]
    if alike_together:
        groups = groupby(children, key=lambda child: (child.label.isdecimal(), child.class_name))
        alike = [(listed, list(group)) for (listed, _), group in groups]
        children = [one for listed, group in alike for one in ([_sum(group)] if listed and len(group) > 1 else group)]
    for place, child in enumerate(children):
        # A list of modules that holds one module needs no line of its own.
        if not child.class_name and not child.own_ns and len(child.children) == 1:
            children[place] = child.children[0]
            children[place].label = f"{child.label}.{children[place].label}"
    node.children = children
    return node


def _sum(nodes: list[Node], label: str | None = None) -> Node:
    total = Node(label=label or f"{nodes[0].label}-{nodes[-1].label}", class_name=nodes[0].class_name)
    for node in nodes:
        for name in ("calls", "ns", "own_ns", "count", "launches"):
            setattr(total, name, getattr(total, name) + getattr(node, name))
        for kind, ns in node.kinds.items():
            total.kinds[kind] = total.kinds.get(kind, 0.0) + ns
    below = grouped((child.label, child) for node in nodes for child in node.children)
    total.children = [_sum(same, label) for label, same in below.items()]
    return total
