"""The implicit GEMM of `causal_conv3d` in Gluon, for Hopper: products queue up in the tensor cores without waiting.

It computes what `kernels_conv3d._conv3d` computes, with the same tiles. Triton waits after each product whose sum the
next one of the same iteration extends; here a whole iteration is issued at once, and the next loads meanwhile. Gluon has
no interpreter, which is why that kernel stays the one that a CPU can verify.
"""

import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor


@gluon.jit
def _load(
    x, cache, w0, w1, rows, b0, b1, bar, step, pred, x_frame, cache_frame, in_x, row, col, n, slot,
    KH: gl.constexpr, KW: gl.constexpr, KC: gl.constexpr, ROWS: gl.constexpr,
    COLS: gl.constexpr, N0: gl.constexpr, N1: gl.constexpr, K: gl.constexpr, HAS_CACHE: gl.constexpr,
):  # fmt: skip
    i = step // (KW * KC)
    j = step // KC % KW
    k = step % KC * K
    tap = i * (KH * KW) + j
    mbarrier.expect(bar, (ROWS * COLS + KH * (N0 + N1)) * K * 2, pred)
    for dh in gl.static_range(KH):
        tma.async_copy_global_to_shared(w0, [tap + dh * KW, k, n], bar, b0.index(slot * KH + dh), pred)
        if N1 > 0:
            tma.async_copy_global_to_shared(w1, [tap + dh * KW, k, n + N0], bar, b1.index(slot * KH + dh), pred)
    if HAS_CACHE and i < in_x:
        for r in gl.static_range(ROWS):
            at = [cache_frame + i, row + r, col + j, k]
            tma.async_copy_global_to_shared(cache, at, bar, rows.index(slot * ROWS + r), pred)
    else:
        for r in gl.static_range(ROWS):
            at = [x_frame + i, row + r, col + j, k]
            tma.async_copy_global_to_shared(x, at, bar, rows.index(slot * ROWS + r), pred)


@gluon.jit
def _store(sum, out, bias, row, col, n, h, w, oc, oh, ow, cout, HAS_BIAS: gl.constexpr, COLS: gl.constexpr,
           N: gl.constexpr, SUM: gl.constexpr, OUT: gl.constexpr):  # fmt: skip
    if HAS_BIAS:
        of_sum = n + gl.arange(0, N, layout=gl.SliceLayout(0, SUM))
        sum += gl.load(bias + of_sum, of_sum < cout, other=0).to(gl.float32)[None, :]
    value = gl.convert_layout(sum.to(out.dtype.element_ty), OUT)
    cols = col + gl.arange(0, COLS, layout=gl.SliceLayout(1, OUT))
    channels = n + gl.arange(0, N, layout=gl.SliceLayout(0, OUT))
    at = (row.to(gl.int64) * oh + cols * ow)[:, None] + (channels.to(gl.int64) * oc)[None, :]
    inside = ((row < h) & (cols < w))[:, None] & (channels < cout)[None, :]
    gl.store(out + at, value, inside)


@gluon.jit
def _conv3d(
    x, cache, w0, w1, bias, out, t_in, cached, cache_frames, front, stride_t,
    t, h, w, cout, pad_h, pad_w, ob, oc, ot, oh, ow,
    HAS_CACHE: gl.constexpr, HAS_BIAS: gl.constexpr, CHANNELS_FAST: gl.constexpr, ORDER: gl.constexpr,
    KT: gl.constexpr, KH: gl.constexpr, KW: gl.constexpr, KC: gl.constexpr,
    GROUPS: gl.constexpr, COLS: gl.constexpr, N0: gl.constexpr, N1: gl.constexpr, K: gl.constexpr,
    STAGES: gl.constexpr, num_warps: gl.constexpr,
):  # fmt: skip
    pid = gl.program_id(0)
    tiles_n = gl.cdiv(cout, N0 + N1)
    tiles_w = gl.cdiv(w, COLS)
    tiles_h = gl.cdiv(h, GROUPS)
    n = pid % tiles_n * (N0 + N1)
    pid = pid // tiles_n
    if ORDER == 0:
        it = pid % t
        pid = pid // t
        col = pid % tiles_w * COLS
        pid = pid // tiles_w
        row = pid % tiles_h * GROUPS
        ib = pid // tiles_h
    elif ORDER == 1:
        col = pid % tiles_w * COLS
        pid = pid // tiles_w
        it = pid % t
        pid = pid // t
        row = pid % tiles_h * GROUPS
        ib = pid // tiles_h
    else:
        col = pid % tiles_w * COLS
        pid = pid // tiles_w
        row = pid % tiles_h * GROUPS
        pid = pid // tiles_h
        it = pid % t
        ib = pid // t

    first = it * stride_t - front
    in_x = gl.minimum(gl.maximum(-first, 0), KT)
    in_cache = gl.minimum(gl.maximum(-first - cached, 0), KT)
    x_frame = ib * t_in + first
    cache_frame = ib * cache_frames + cache_frames + first
    row_in = row - pad_h
    col_in = col - pad_w

    ROWS: gl.constexpr = GROUPS + KH - 1
    SUMS: gl.constexpr = 2 if N1 > 0 else 1
    SUM0: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [num_warps, 1], [16, N0, 16])
    SUM1: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [num_warps, 1], [16, N1 if N1 > 0 else N0, 16])
    dtype: gl.constexpr = x.dtype
    rows = gl.allocate_shared_memory(
        dtype, [STAGES * ROWS, COLS, K], gl.NVMMASharedLayout(K * 2 if K < 64 else 128, 16, 2)
    )
    b0 = gl.allocate_shared_memory(
        dtype, [STAGES * KH, K, N0], gl.NVMMASharedLayout(N0 * 2 if N0 < 64 else 128, 16, 2)
    )
    if N1 > 0:
        b1 = gl.allocate_shared_memory(
            dtype, [STAGES * KH, K, N1], gl.NVMMASharedLayout(N1 * 2 if N1 < 64 else 128, 16, 2)
        )
    else:
        b1 = b0
    bars = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(STAGES):
        mbarrier.init(bars.index(s), count=1)
    fence_async_shared()

    begin = in_cache * (KW * KC) if HAS_CACHE else in_x * (KW * KC)
    end = KT * KW * KC
    for s in gl.static_range(STAGES - 1):
        _load(x, cache, w0, w1, rows, b0, b1, bars.index(s), begin + s, begin + s < end, x_frame, cache_frame, in_x, row_in,
              col_in, n, s, KH, KW, KC, ROWS, COLS, N0, N1, K, HAS_CACHE)  # fmt: skip

    sums = ()
    for _ in gl.static_range(GROUPS):
        sums = sums + (warpgroup_mma_init(gl.zeros((COLS, N0), gl.float32, SUM0)),)
        if N1 > 0:
            sums = sums + (warpgroup_mma_init(gl.zeros((COLS, N1), gl.float32, SUM1)),)
    slot = 0
    phase = 0
    behind = STAGES - 1
    for step in range(begin, end):
        mbarrier.wait(bars.index(slot), phase)
        done = warpgroup_mma_wait(0, deps=sums)
        new = ()
        if GROUPS * SUMS == 1:
            new = new + (done,)
        else:
            new = done
        for r in gl.static_range(ROWS):
            left = rows.index(slot * ROWS + r)
            updated = ()
            for g in gl.static_range(GROUPS):
                if (r - g >= 0) and (r - g < KH):
                    updated = updated + (
                        warpgroup_mma(left, b0.index(slot * KH + r - g), new[g * SUMS], is_async=True),
                    )
                    if N1 > 0:
                        updated = updated + (
                            warpgroup_mma(left, b1.index(slot * KH + r - g), new[g * SUMS + 1], is_async=True),
                        )
                else:
                    updated = updated + (new[g * SUMS],)
                    if N1 > 0:
                        updated = updated + (new[g * SUMS + 1],)
            new = updated
        sums = new
        # The slot of the step before is free now: its products are done.
        _load(x, cache, w0, w1, rows, b0, b1, bars.index(behind), step + STAGES - 1, step + STAGES - 1 < end, x_frame,
              cache_frame, in_x, row_in, col_in, n, behind, KH, KW, KC, ROWS, COLS, N0, N1, K, HAS_CACHE)  # fmt: skip
        behind = slot
        slot += 1
        if slot == STAGES:
            slot = 0
            phase ^= 1

    done = warpgroup_mma_wait(0, deps=sums)
    totals = ()
    if GROUPS * SUMS == 1:
        totals = totals + (done,)
    else:
        totals = done
    if CHANNELS_FAST:
        OUT: gl.constexpr = gl.BlockedLayout([1, 8], [8, 4], [num_warps, 1], [1, 0])
    else:
        OUT: gl.constexpr = gl.BlockedLayout([8, 1], [8, 4], [1, num_warps], [0, 1])
    out += ib.to(gl.int64) * ob + it.to(gl.int64) * ot
    for g in gl.static_range(GROUPS):
        _store(totals[g * SUMS], out, bias, row + g, col, n, h, w, oc, oh, ow, cout, HAS_BIAS, COLS, N0, SUM0, OUT)
        if N1 > 0:
            _store(totals[g * SUMS + 1], out, bias, row + g, col, n + N0, h, w, oc, oh, ow, cout, HAS_BIAS, COLS, N1, SUM1,
                   OUT)  # fmt: skip


def _descriptor(tensor, block):
    layout = gl.NVMMASharedLayout(min(128, block[-1] * tensor.element_size()), tensor.element_size() * 8, len(block))
    return TensorDescriptor.from_tensor(tensor, block, layout)


ORDER = 0


def convolve(x, cache, packed, bias, out, b, t, cached, cache_frames, front, stride_t, padding, kernel, c, tile):
    """Fill `out` from frames [b * t, h, w, c]; see `kernels_conv3d.implicit_gemm`."""
    _, cout, out_t, out_h, out_w = out.shape
    block = [1, 1, tile.cols, tile.k]
    grid = b * out_t * triton.cdiv(out_h, tile.groups) * triton.cdiv(out_w, tile.cols)
    frames = _descriptor(x, block)
    _conv3d[(grid * triton.cdiv(cout, tile.n0 + tile.n1),)](
        frames, _descriptor(cache, block) if cached else frames,
        _descriptor(packed, [1, tile.k, tile.n0]), _descriptor(packed, [1, tile.k, tile.n1 or tile.n0]),
        packed if bias is None else bias, out, t, cached, cache_frames, front, stride_t,
        out_t, out_h, out_w, cout, padding[1], padding[2], *out.stride(),
        HAS_CACHE=cached > 0, HAS_BIAS=bias is not None, CHANNELS_FAST=out.stride(1) == 1, ORDER=ORDER,
        KT=kernel[0], KH=kernel[1], KW=kernel[2], KC=triton.cdiv(c, tile.k),
        GROUPS=tile.groups, COLS=tile.cols, N0=tile.n0, N1=tile.n1, K=tile.k, STAGES=tile.stages, num_warps=tile.warps,
    )  # fmt: skip
