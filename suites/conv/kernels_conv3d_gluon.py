"""The implicit GEMM of `causal_conv3d` in Gluon, for Hopper: whole batches of products queue up in the tensor cores.

It computes what `kernels_conv3d._conv3d` computes, tile by tile. Triton waits after each product whose sum the next one
of the same iteration extends; here an iteration is issued at once, and the next loads meanwhile. Gluon has no
interpreter, which is why the other kernel stays: it is the one that a CPU can verify.
"""

import torch
import triton
from kernels_conv3d import Tile
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

# As in kernels_conv3d: the bfloat16 parts of the small products, smallest first; the sixth, 0 and 0, is the large one.
_X_PARTS = gl.constexpr(0 | 1 << 2 | 2 << 4 | 0 << 6 | 1 << 8)
_W_PARTS = gl.constexpr(2 | 1 << 2 | 0 << 4 | 1 << 6 | 0 << 8)


@gluon.jit
def _load(
    sources, buffers, place, step, steps, small_steps, slot,
    SPLIT: gl.constexpr, HAS_CACHE: gl.constexpr, KH: gl.constexpr, KW: gl.constexpr, KC: gl.constexpr,
    ROWS: gl.constexpr, COLS: gl.constexpr, N0: gl.constexpr, N1: gl.constexpr, K: gl.constexpr,
):  # fmt: skip
    """Order what one iteration multiplies: the rows of one frame that the tile needs, and their taps."""
    x, cache, w0, w1 = sources
    rows, b0, b1, bars = buffers
    tap_begin, in_x, x_frame, cache_frame, row, col, n, x_part, cache_part, w_part = place
    pred = step < steps
    bar = bars.index(slot)
    product = 0
    if SPLIT:
        large = step >= small_steps
        product = gl.where(large, 5, step // KC % 5)
        step = gl.where(large, step - small_steps, step // (5 * KC) * KC + step % KC)
    i = tap_begin + step // (KW * KC)
    j = step // KC % KW
    k = step % KC * K
    tap = i * (KH * KW) + j
    if SPLIT:
        tap += (_W_PARTS >> (2 * product) & 3) * w_part
        x_frame += (_X_PARTS >> (2 * product) & 3) * x_part
        cache_frame += (_X_PARTS >> (2 * product) & 3) * cache_part
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
def _multiply(sums, buffers, slot, GROUPS: gl.constexpr, KH: gl.constexpr, N1: gl.constexpr):
    """Issue every product of one iteration, each row's together; the sums are to be waited for."""
    rows, b0, b1, _ = buffers
    ROWS: gl.constexpr = GROUPS + KH - 1
    SUMS: gl.constexpr = 2 if N1 > 0 else 1
    for r in gl.static_range(ROWS):
        left = rows.index(slot * ROWS + r)
        new = ()
        for g in gl.static_range(GROUPS):
            if (r - g >= 0) and (r - g < KH):
                new = new + (warpgroup_mma(left, b0.index(slot * KH + r - g), sums[g * SUMS], is_async=True),)
                if N1 > 0:
                    new = new + (warpgroup_mma(left, b1.index(slot * KH + r - g), sums[g * SUMS + 1], is_async=True),)
            else:
                new = new + (sums[g * SUMS],)
                if N1 > 0:
                    new = new + (sums[g * SUMS + 1],)
        sums = new
    return sums


@gluon.jit
def _wait(sums, COUNT: gl.constexpr):
    if COUNT == 1:
        return (warpgroup_mma_wait(0, deps=sums),)
    else:
        return warpgroup_mma_wait(0, deps=sums)


@gluon.jit
def _multiply_apart(sums, buffers, slot, GROUPS: gl.constexpr, KH: gl.constexpr, N1: gl.constexpr):
    """Sum the products of one iteration by themselves and add that outside the tensor core, which rounds to nearest."""
    rows, b0, b1, _ = buffers
    ROWS: gl.constexpr = GROUPS + KH - 1
    SUMS: gl.constexpr = 2 if N1 > 0 else 1
    new = ()
    for s in gl.static_range(GROUPS * SUMS):
        part = gl.zeros_like(sums[s])
        for dh in gl.static_range(KH):
            left = rows.index(slot * ROWS + s // SUMS + dh)
            if s % SUMS == 0:
                part = warpgroup_mma(left, b0.index(slot * KH + dh), part, is_async=True)
            else:
                part = warpgroup_mma(left, b1.index(slot * KH + dh), part, is_async=True)
        new = new + (sums[s] + warpgroup_mma_wait(0, deps=(part,)),)
    return new


@gluon.jit
def _store(total, out, bias, row, col, n, h, w, oc, oh, ow, cout, HAS_BIAS: gl.constexpr, COLS: gl.constexpr,
           N: gl.constexpr, SUM: gl.constexpr, OUT: gl.constexpr):  # fmt: skip
    if HAS_BIAS:
        of_sum = n + gl.arange(0, N, layout=gl.SliceLayout(0, SUM))
        total += gl.load(bias + of_sum, of_sum < cout, other=0).to(gl.float32)[None, :]
    value = gl.convert_layout(total.to(out.dtype.element_ty), OUT)
    cols = (col + gl.arange(0, COLS, layout=gl.SliceLayout(1, OUT)))[:, None]
    channels = (n + gl.arange(0, N, layout=gl.SliceLayout(0, OUT)))[None, :]
    at = row.to(gl.int64) * oh + cols * ow + channels.to(gl.int64) * oc
    gl.store(out + at, value, (row < h) & (cols < w) & (channels < cout))


@gluon.jit
def _conv3d(  # noqa: C901, PLR0912, PLR0915 - one kernel; its parts cannot be given layouts
    x, cache, w0, w1, bias, out, t_in, cached, cache_frames, front, stride_t,
    t, h, w, cout, pad_h, pad_w, x_part, cache_part, w_part, ob, oc, ot, oh, ow,
    HAS_CACHE: gl.constexpr, HAS_BIAS: gl.constexpr, SPLIT: gl.constexpr, CHANNELS_FAST: gl.constexpr,
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
    col = pid % tiles_w * COLS
    pid = pid // tiles_w
    it = pid % t
    pid = pid // t
    row = pid % tiles_h * GROUPS
    ib = pid // tiles_h

    first = it * stride_t - front
    in_x = gl.minimum(gl.maximum(-first, 0), KT)
    tap_begin = gl.minimum(gl.maximum(-first - cached, 0), KT)
    place = (tap_begin, in_x, ib * t_in + first, ib * cache_frames + cache_frames + first, row - pad_h, col - pad_w, n,
             x_part, cache_part, w_part)  # fmt: skip
    large_steps = (KT - tap_begin) * (KW * KC)
    small_steps = large_steps * (5 if SPLIT else 0)
    steps = small_steps + large_steps

    ROWS: gl.constexpr = GROUPS + KH - 1
    SUMS: gl.constexpr = 2 if N1 > 0 else 1
    NARROW: gl.constexpr = N1 if N1 > 0 else N0
    SUM0: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [num_warps, 1], [16, N0, 16])
    SUM1: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [num_warps, 1], [16, NARROW, 16])
    LEFT: gl.constexpr = gl.NVMMASharedLayout(K * 2 if K < 64 else 128, 16, 2)
    RIGHT0: gl.constexpr = gl.NVMMASharedLayout(N0 * 2 if N0 < 64 else 128, 16, 2)
    RIGHT1: gl.constexpr = gl.NVMMASharedLayout(NARROW * 2 if NARROW < 64 else 128, 16, 2)
    rows = gl.allocate_shared_memory(x.dtype, [STAGES * ROWS, COLS, K], LEFT)
    b0 = gl.allocate_shared_memory(x.dtype, [STAGES * KH, K, N0], RIGHT0)
    b1 = b0
    if N1 > 0:
        b1 = gl.allocate_shared_memory(x.dtype, [STAGES * KH, K, N1], RIGHT1)
    bars = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(STAGES):
        mbarrier.init(bars.index(s), count=1)
    fence_async_shared()
    sources = (x, cache, w0, w1)
    buffers = (rows, b0, b1, bars)
    for s in gl.static_range(STAGES - 1):
        _load(sources, buffers, place, s, steps, small_steps, s, SPLIT, HAS_CACHE, KH, KW, KC, ROWS, COLS, N0, N1, K)

    sums = ()
    for _ in gl.static_range(GROUPS):
        sums = sums + (gl.zeros((COLS, N0), gl.float32, SUM0),)
        if N1 > 0:
            sums = sums + (gl.zeros((COLS, N1), gl.float32, SUM1),)
    running = ()
    for s in gl.static_range(GROUPS * SUMS):
        running = running + (warpgroup_mma_init(sums[s]),)
    slot = 0
    phase = 0
    behind = STAGES - 1
    for step in range(small_steps if SPLIT else steps):
        mbarrier.wait(bars.index(slot), phase)
        # The products of the iteration before are done, so the slot that they read can be filled again.
        sums = _wait(running, GROUPS * SUMS)
        running = _multiply(sums, buffers, slot, GROUPS, KH, N1)
        _load(sources, buffers, place, step + STAGES - 1, steps, small_steps, behind,
              SPLIT, HAS_CACHE, KH, KW, KC, ROWS, COLS, N0, N1, K)  # fmt: skip
        behind = slot
        slot += 1
        if slot == STAGES:
            slot = 0
            phase ^= 1
    sums = _wait(running, GROUPS * SUMS)
    if SPLIT:
        for step in range(small_steps, steps):
            mbarrier.wait(bars.index(slot), phase)
            sums = _multiply_apart(sums, buffers, slot, GROUPS, KH, N1)
            _load(sources, buffers, place, step + STAGES - 1, steps, small_steps, behind,
                  SPLIT, HAS_CACHE, KH, KW, KC, ROWS, COLS, N0, N1, K)  # fmt: skip
            behind = slot
            slot += 1
            if slot == STAGES:
                slot = 0
                phase ^= 1

    if CHANNELS_FAST:
        OUT: gl.constexpr = gl.BlockedLayout([1, 8], [8, 4], [num_warps, 1], [1, 0])
    else:
        OUT: gl.constexpr = gl.BlockedLayout([8, 1], [8, 4], [1, num_warps], [0, 1])
    out += ib.to(gl.int64) * ob + it.to(gl.int64) * ot
    for g in gl.static_range(GROUPS):
        _store(sums[g * SUMS], out, bias, row + g, col, n, h, w, oc, oh, ow, cout, HAS_BIAS, COLS, N0, SUM0, OUT)
        if N1 > 0:
            _store(sums[g * SUMS + 1], out, bias, row + g, col, n + N0, h, w, oc, oh, ow, cout, HAS_BIAS, COLS, N1, SUM1,
                   OUT)  # fmt: skip


def choose_tile(cin, cout, h, w, split):
    """Return the tile for a shape, by rule instead of autotuning.

    Measured on an H200 (torch 2.11, triton 3.6; bfloat16, channels-last, kernel 3 x 3 x 3, 2 cached frames unless none),
    in microseconds and TFLOP/s; what arithmetic alone takes at 790 TFLOP/s in brackets:

    ====================================  ==========================  ======================================================
    channels, frames, size                chosen                      others
    ====================================  ==========================  ======================================================
    64 -> 64, 4 x 32 of 128, no cache     4 rows: 676, 687 (587)      2 rows 857; k 16 867; k 64 985; 128 pixels, 8 warps 929
    96 -> 96, 4 of 480 x 832              4 rows, 64+32: 1262 (1006)  3 rows 1434; 2 rows 1367; 3 stages 1858; 8 warps 1644
    192 -> 192, 4 of 240 x 416            2 rows, 128+64: 1114        4 rows, 64: 1207; 3 stages 1442; 8 warps 1469
    384 -> 384, 2 of 120 x 208            3 rows, 128: 613            2 rows, 128+64: 671; 2 rows, 128: 694
    384 -> 384, 1 of 60 x 104             2 rows, 128: 117            3 rows 145; 4 rows, 64: 126
    64 -> 64 float32, 4 x 32 of 128       4 rows: 4836 (3522)         3 rows 5100
    ====================================  ==========================  ======================================================

    Several small programs on a multiprocessor beat one large one throughout: while one stores, others multiply.
    """
    groups = 4 if h >= 4 else 1
    k = 32 if cin > 16 else 16
    if not split and h > 1 and cout % 96 == 0 and cout % 64 != 0:
        return Tile(groups, 64, 64, 32, k, stages=2)
    if not split and h > 1 and cout % 192 == 0 and w >= 256:
        return Tile(min(2, groups), 64, 128, 64, k, stages=2)
    if not split and h > 1 and cout % 128 == 0:
        return Tile(min(3 if h * w >= 128 * 128 else 2, groups), 64, 128, 0, k, stages=2)
    if cout <= 16:
        return Tile(8 if h >= 8 else groups, 64, 16, 0, k, stages=2)
    return Tile(groups, 64, min(64, triton.next_power_of_2(cout)), 0, k, stages=2)


def convolve(x, cache, packed, bias, out, b, t, cached, cache_frames, front, stride_t, padding, kernel, c, tile):
    """Fill `out` from frames [b * t, h, w, c]; see `kernels_conv3d.implicit_gemm`."""
    _, cout, out_t, out_h, out_w = out.shape
    tile = tile or choose_tile(c, cout, out_h, out_w, out.dtype == torch.float32)
    assert tile.stages > 1, "with one stage nothing is loaded ahead, and the kernel waits for ever"
    block = [1, 1, tile.cols, tile.k]
    grid = b * out_t * triton.cdiv(out_h, tile.groups) * triton.cdiv(out_w, tile.cols)
    frames = _descriptor(x, block)
    _conv3d[(grid * triton.cdiv(cout, tile.n0 + tile.n1),)](
        frames, _descriptor(cache, block) if cached else frames,
        _descriptor(packed, [1, tile.k, tile.n0]), _descriptor(packed, [1, tile.k, tile.n1 or tile.n0]),
        packed if bias is None else bias, out, t, cached, cache_frames, front, stride_t,
        out_t, out_h, out_w, cout, padding[1], padding[2], b * t, b * cache_frames,
        kernel[0] * kernel[1] * kernel[2], *out.stride(),
        HAS_CACHE=cached > 0, HAS_BIAS=bias is not None, SPLIT=out.dtype == torch.float32,
        CHANNELS_FAST=out.stride(1) == 1, KT=kernel[0], KH=kernel[1], KW=kernel[2], KC=triton.cdiv(c, tile.k),
        GROUPS=tile.groups, COLS=tile.cols, N0=tile.n0, N1=tile.n1, K=tile.k, STAGES=tile.stages,
        num_warps=tile.warps,
    )  # fmt: skip


def _descriptor(tensor, block):
    layout = gl.NVMMASharedLayout(min(128, block[-1] * tensor.element_size()), tensor.element_size() * 8, len(block))
    return TensorDescriptor.from_tensor(tensor, block, layout)
