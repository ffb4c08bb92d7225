from dataclasses import replace
from typing import Any

import pytest

from pairbench.features.breakdown.summary import (
    KINDS,
    Node,
    agrees,
    by_kernel,
    by_kind,
    by_line,
    kind_of,
    off_by,
    parts_ns,
    tree_of,
    unknown_part,
)
from pairbench.model.breakdown import Breakdown, DeviceWait, Idle, ModuleCalls, SourceLine, WorkTotal
from pairbench.model.plan import Entry
from tests.breakdowns_made import kept

ENTRY = Entry(implementation="baseline", mode="eager")


def piece(ns: float = 1.0, *, ops: str = "", **more: Any) -> WorkTotal:
    return WorkTotal(**{"module": "", "kernel": "k", **more}, ops=tuple(ops.split()), count=1, launches=1, ns=ns)


def spot(what: str) -> SourceLine:
    return replace(kept().parts[0].spots[0], what=what)


def breakdown(*pieces: WorkTotal, modules: dict[str, str] | None = None, **more: object) -> Breakdown:
    called = tuple(ModuleCalls(name=name, class_name=kind, calls=1) for name, kind in (modules or {}).items())
    whole = {"whole_ns": sum(item.ns for item in pieces), "spots": (), **more}
    return Breakdown(entry=ENTRY, calls=1, modules=called, pieces=pieces, **whole)  # type: ignore[arg-type]


FLASH = "void pytorch_flash::flash_fwd_kernel<...>"


@pytest.mark.parametrize(
    ("kind", "ops", "kernel", "module"),
    [
        ("attention", "scaled_dot_product_attention _flash_attention_forward", FLASH, "net"),
        ("attention", "", FLASH, "net"),
        ("attention", "", "_block_attn_fwd", "net"),
        ("attention", "bmm", "cutlass_gemm", "net.self_attn"),
        ("attention", "softmax _softmax", "softmax_warp_forward", "net.self_attn"),
        ("matmul", "linear addmm", "nvjet_tst_128x256", "net.self_attn"),
        ("matmul", "bmm", "cutlass_gemm", "net"),
        ("matmul", "einsum clone copy_", "elementwise_kernel<direct_copy>", "net"),
        ("matmul", "", "sm90_xmma_gemm_bf16", "net"),
        ("matmul", "", "triton_tem_fused_mm_0", "net"),
        ("convolution", "conv3d convolution cudnn_convolution", "nchwToNhwcKernel", "net"),
        ("convolution", "", "sm80_xmma_fprop_implicit_gemm", "net"),
        ("norm", "layer_norm native_layer_norm", "vectorized_layer_norm_kernel", "net"),
        ("norm", "pow", "vectorized_elementwise_kernel", "net.norm1"),
        ("norm", "", "_rms_norm_fwd", "net"),
        ("norm", "", "triton_per_fused__to_copy_add_mean_mul_pow_rsqrt_0", "net"),
        ("elementwise", "", "triton_poi_fused__to_copy_add_mul_0", "net"),
        ("elementwise", "Torch-Compiled", "triton_poi_fused_add_0", "net"),
        ("elementwise", "mul", "vectorized_elementwise_kernel", "net"),
        ("elementwise", "gelu", "vectorized_elementwise_kernel", "net.ffn"),
        ("copy", "to _to_copy copy_", "unrolled_elementwise_kernel<direct_copy>", "net.norm1"),
        ("copy", "cat", "CatArrayBatchedCopy", "net"),
        ("copy", "contiguous clone copy_", "Memcpy DtoD", "net"),
        ("copy", "", "Memcpy DtoD (Device -> Device)", "net"),
        ("cache", "index_copy_", "index_copy_kernel", "net"),
        ("cache", "", "_write_kv_cache", "net"),
        ("other", "embedding index_select", "indexSelect", "net"),
        ("other", "", "something_new", "net"),
        ("attention", "mylib::flash_attn_fwd", "k", "net"),
    ],
)
def test_kinds(kind: str, ops: str, kernel: str, module: str) -> None:
    ops = ops.replace("Torch-Compiled", "Torch-Compiled_Region:_0/0")
    one = piece(module=module, ops=ops, kernel=kernel)
    one = replace(one, ops=tuple(name.replace("_Region:_", " Region: ") for name in one.ops))
    assert kind_of(one, (), {"net.norm1": "RMSNorm", "net.self_attn": "SelfAttention"}) == kind
    assert kind in KINDS


def test_a_cpu_s_time_between_operators_is_the_host_s() -> None:
    assert kind_of(piece(kernel=None), (), {}) == "host"
    assert kind_of(piece(kernel=None, ops="TorchDynamo"), (), {}) == "host"
    region = WorkTotal(module="", ops=("Torch-Compiled Region: 0/0",), count=1, ns=1.0)
    assert kind_of(region, (), {}) == "compiled"
    assert kind_of(piece(kernel="mystery", known=False), (), {}) == "unknown"
    assert kind_of(piece(kernel="void gemm", known=False), (), {}) == "matmul"


def test_what_a_line_is_seen_to_do_says_more_than_its_operator() -> None:
    spots = (spot("cache"), spot("cast"), spot("sync"))
    assert [kind_of(piece(ops="copy_", spot=place), spots, {}) for place in (None, 0, 1)] == ["copy", "cache", "copy"]
    assert kind_of(piece(ops="item", spot=2), spots, {}) == "other"


NETWORK = {
    "net": "Net",
    "net.blocks.0": "Block",
    "net.blocks.0.ffn": "Linear",
    "net.blocks.1": "Block",
    "net.blocks.1.ffn": "Linear",
    "net.head": "Linear",
}


def network(**more: object) -> Breakdown:
    pieces = [
        piece(10, module="net.blocks.0.ffn", ops="mm"),
        piece(30, module="net.blocks.1.ffn", ops="mm"),
        piece(5, module="net.blocks.1", ops="add"),
        piece(50, module="net.head", ops="mm"),
        piece(5, ops="copy_"),
    ]
    return breakdown(*pieces, modules=NETWORK, **more)


def lines(node: Node, depth: int = 0) -> list[tuple[int, str, float, float, int]]:
    own = (depth, node.label, node.ns, node.own_ns, node.calls)
    return [own, *(line for child in node.children for line in lines(child, depth + 1))]


def _check_sums(node: Node) -> None:
    assert node.ns == pytest.approx(node.own_ns + sum(child.ns for child in node.children))
    assert sum(node.kinds.values()) == pytest.approx(node.ns)
    for child in node.children:
        _check_sums(child)


def test_blocks_that_are_alike_are_one_or_each_for_itself() -> None:
    assert lines(tree_of(network())) == [
        (0, "the whole call", 100, 5, 1),
        (1, "net", 95, 0, 1),
        (2, "blocks.0-1", 45, 5, 2),
        (3, "ffn", 40, 0 + 40, 2),
        (2, "head", 50, 50, 1),
    ]
    _check_sums(tree_of(network()))
    _check_sums(tree_of(network(), alike_together=False))
    each = lines(tree_of(network(), alike_together=False))
    assert [label for _, label, *_ in each] == ["the whole call", "net", "blocks", "0", "ffn", "1", "ffn", "head"]


def test_sums_by_kind_and_kernel_are_the_longest_first() -> None:
    found = network()
    assert [(row.name, row.ns, row.count) for row in by_kind(found)] == [
        ("matmul", 90, 3),
        ("copy", 5, 1),
        ("elementwise", 5, 1),
    ]
    assert next((row.name, row.kind, row.ns) for row in by_kernel(found)) == ("k", "matmul", 90)
    assert sum(row.ns for row in by_kernel(found)) == parts_ns(found) == 100


def test_parts_that_are_not_the_whole_are_told() -> None:
    assert agrees(network()) and off_by(network()) == 0
    far = breakdown(piece(1e6), whole_ns=2e6)
    assert not agrees(far) and off_by(far) == 0.5
    # A few microseconds are a CPU's clock.
    assert agrees(breakdown(piece(1e4), whole_ns=2e4))
    assert unknown_part(breakdown(piece(1, known=False), piece(3))) == 0.25


def test_lines_have_the_time_of_their_pieces_and_waits_come_first() -> None:
    spots = (spot("copy"), spot("sync"), spot("cast"))
    waits = tuple(
        DeviceWait(name="cudaStreamSynchronize", module="", ops=(), spot=place, count=count)
        for place, count in ((1, 3), (None, 2))
    )
    idle = Idle(span_ns=1, busy_ns=1, starved_ns=0, after_sync_ns=0)
    found = breakdown(piece(2, spot=0), piece(7, spot=2), piece(1), spots=spots, waits=waits, idle=idle)
    assert [(item.spot.what, item.ns, item.waits) for item in by_line(found)] == [
        ("sync", None, 3),
        ("cast", 7, 0),
        ("copy", 2, 0),
    ]
    assert sum(wait.count for wait in found.waits if wait.spot is None) == 2
