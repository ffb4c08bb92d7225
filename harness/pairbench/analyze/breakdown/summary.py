"""A breakdown added up: as a tree of modules, by kind of work, by kernel and by line of code. Values in, values out."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import groupby

from pairbench.analyze.breakdown.kinds import KINDS, kind_of
from pairbench.model.breakdown import Breakdown, SourceLine, WorkTotal

_AGREES = 0.05
_AGREES_NS = 20_000.0
"""Parts and whole may be this far apart before the breakdown itself is in doubt; reading a CPU's clock takes time, too."""


@dataclass(kw_only=True)
class Node:
    """A module, or several alike in a list of modules, with everything below."""

    label: str
    class_name: str = ""
    """The module's class. It is empty for what is never called itself: the whole call, and lists of modules."""
    calls: int = 0
    ns: float = 0.0
    own_ns: float = 0.0
    """The time in this module and in none below it."""
    count: int = 0
    launches: int = 0
    kinds: dict[str, float] = field(default_factory=dict)
    """The nanoseconds of each kind."""
    children: "list[Node]" = field(default_factory=list)

    def add(self, piece: WorkTotal, kind: str) -> None:
        """Add the work of this module or of one below."""
        self.ns += piece.ns
        self.count += piece.count
        self.launches += piece.launches
        self.kinds[kind] = self.kinds.get(kind, 0.0) + piece.ns

    def child(self, label: str) -> "Node":
        """Return the child of that label, made if need be."""
        for node in self.children:
            if node.label == label:
                return node
        self.children.append(Node(label=label))
        return self.children[-1]


@dataclass(frozen=True, kw_only=True)
class BreakdownRow:
    """What one kind, kernel or operator adds up to."""

    name: str
    kind: str
    count: int
    launches: int
    ns: float


@dataclass(frozen=True, kw_only=True)
class SpotTime:
    """What a line adds up to."""

    spot: SourceLine
    ns: float | None
    """The time of it; None where it is not known which of the work is its own."""
    waits: int
    """How often the host waits for the device, as the trace has it."""


def parts_ns(breakdown: Breakdown) -> float:
    """Return what the pieces add up to."""
    return sum(piece.ns for piece in breakdown.pieces)


def off_by(breakdown: Breakdown) -> float | None:
    """Return how far the parts are from the whole, as a part of it."""
    return abs(parts_ns(breakdown) / breakdown.whole_ns - 1) if breakdown.whole_ns else None


def agrees(breakdown: Breakdown) -> bool:
    """Return whether the parts are the whole."""
    return abs(parts_ns(breakdown) - breakdown.whole_ns) <= max(_AGREES * breakdown.whole_ns, _AGREES_NS)


def unknown_part(breakdown: Breakdown) -> float:
    """Return the part of the time of which is not known what launched it."""
    return sum(piece.ns for piece in breakdown.pieces if not piece.known) / (parts_ns(breakdown) or 1.0)


def _kinds(breakdown: Breakdown) -> Callable[[WorkTotal], str]:
    classes = {module.name: module.class_name for module in breakdown.modules}
    return lambda piece: kind_of(piece, breakdown.spots, classes)


def by_kind(breakdown: Breakdown) -> list[BreakdownRow]:
    """Return the kinds of work, the longest first."""
    kind = _kinds(breakdown)
    rows = _rows(breakdown.pieces, kind, kind)
    return sorted(rows, key=lambda row: (-row.ns, KINDS.index(row.kind)))


def by_kernel(breakdown: Breakdown) -> list[BreakdownRow]:
    """Return the kernels, or a CPU's operators, the longest first."""
    pieces = [piece for piece in breakdown.pieces if piece.kernel or piece.ops]
    rows = _rows(pieces, lambda piece: piece.kernel or piece.ops[-1], _kinds(breakdown))
    return sorted(rows, key=lambda row: -row.ns)


def _rows(
    pieces: Iterable[WorkTotal], name: Callable[[WorkTotal], str], kind: Callable[[WorkTotal], str]
) -> list[BreakdownRow]:
    groups: dict[tuple[str, str], list[WorkTotal]] = {}
    for piece in pieces:
        groups.setdefault((name(piece), kind(piece)), []).append(piece)
    return [
        BreakdownRow(
            name=of[0],
            kind=of[1],
            count=sum(piece.count for piece in group),
            launches=sum(piece.launches for piece in group),
            ns=sum(piece.ns for piece in group),
        )
        for of, group in groups.items()
    ]


def by_line(breakdown: Breakdown) -> list[SpotTime]:
    """Return the lines that copy, cast and wait: waits first, then the longest."""
    times: dict[int, float] = {}
    for piece in breakdown.pieces:
        if piece.spot is not None:
            times[piece.spot] = times.get(piece.spot, 0.0) + piece.ns
    waits: dict[int, int] = {}
    for wait in breakdown.waits:
        if wait.spot is not None:
            waits[wait.spot] = waits.get(wait.spot, 0) + wait.count
    spots = [
        SpotTime(spot=spot, ns=times.get(index), waits=waits.get(index, 0))
        for index, spot in enumerate(breakdown.spots)
    ]
    return sorted(spots, key=lambda item: (item.spot.what != "sync" and not item.waits, -(item.ns or 0.0)))


def unexplained_waits(breakdown: Breakdown) -> int:
    """Return the waits in the trace that no line is known of."""
    return sum(wait.count for wait in breakdown.waits if wait.spot is None)


def tree_of(breakdown: Breakdown, *, alike_together: bool = True) -> Node:
    """Return the tree of modules, the whole call as its root.

    Args:
        breakdown: of one implementation.
        alike_together: Add up neighbours of one class in a list of modules, as the blocks of a network are.
    """
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
        children = _together(children)
    # A list of modules that holds one thing needs no line of its own.
    node.children = [
        _below(child) if not child.class_name and not child.own_ns and len(child.children) == 1 else child
        for child in children
    ]
    return node


def _below(node: Node) -> Node:
    (child,) = node.children
    child.label = f"{node.label}.{child.label}"
    return child


def _together(nodes: list[Node]) -> list[Node]:
    shown: list[Node] = []
    for (listed, _), group in groupby(nodes, key=lambda node: (node.label.isdecimal(), node.class_name)):
        alike = list(group)
        shown += [_sum(alike)] if listed and len(alike) > 1 else alike
    return shown


def _sum(nodes: list[Node], label: str | None = None) -> Node:
    total = Node(label=label or f"{nodes[0].label}-{nodes[-1].label}", class_name=nodes[0].class_name)
    below: dict[str, list[Node]] = {}
    for node in nodes:
        total.calls += node.calls
        total.ns += node.ns
        total.own_ns += node.own_ns
        total.count += node.count
        total.launches += node.launches
        for kind, ns in node.kinds.items():
            total.kinds[kind] = total.kinds.get(kind, 0.0) + ns
        for child in node.children:
            below.setdefault(child.label, []).append(child)
    total.children = [_sum(same, label) for label, same in below.items()]
    return total
