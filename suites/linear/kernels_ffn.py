"""A Triton matrix product that ends with GELU: what it writes is activated, where a library writes, reads and writes again."""

from __future__ import annotations

import torch

from ..common.kernels_rounded import INTERPRETED, rounded

try:
    import triton
    import triton.language as tl
except ImportError:  # there are no wheels off Linux; the variants need="triton" are skipped there
    triton = None

MULTIPROCESSORS = 132
"""Of an H100 or H200. A constant and not asked of the device, so that the same shape runs the same kernel everywhere."""


def gelu_product(x, weight, bias):
    """Return gelu(x @ weight.T + bias), in tanh's approximation, for x of [..., inner] and weight of [features, inner]."""
    rows_of_x = x.reshape(-1, x.shape[-1])
    rows, (features, inner) = rows_of_x.shape[0], weight.shape
    out = torch.empty((rows, features), dtype=x.dtype, device=x.device)
    if out.numel():
        block_r, block_f, warps, stages = _tile(rows, features)
        _gelu_product[(triton.cdiv(rows, block_r) * triton.cdiv(features, block_f),)](
            rows_of_x, weight, bias, out, rows, *rows_of_x.stride(), *weight.stride(),
            FEATURES=features, INNER=inner, BY_HAND=INTERPRETED,
            BLOCK_R=block_r, BLOCK_F=block_f, BLOCK_K=64, GROUP=8, num_warps=warps, num_stages=stages,
        )  # fmt: skip
    return out.reshape(*x.shape[:-1], features)


def _tile(rows, features):
    """Return rows and features of a program's tile, its warps and its stages.

    The largest tile reads the least: 128 x 256 is what two warpgroups can add up in registers, and four stages of it fill
    the shared memory. Smaller ones where it would leave multiprocessors without work.
    """
    if triton.cdiv(rows, 128) * triton.cdiv(features, 256) >= MULTIPROCESSORS:
        return 128, 256, 8, 4
    if triton.cdiv(rows, 128) * triton.cdiv(features, 128) >= MULTIPROCESSORS // 2:
        return 128, 128, 4, 4
    return min(64, max(16, triton.next_power_of_2(rows))), min(64, max(16, triton.next_power_of_2(features))), 4, 4


def _jit(kernel):
    return kernel if triton is None else triton.jit(kernel)


@_jit
def _gelu_product(
    x, weight, bias, out, rows, x_row, x_column, weight_row, weight_column,
    FEATURES: tl.constexpr, INNER: tl.constexpr, BY_HAND: tl.constexpr,
    BLOCK_R: tl.constexpr, BLOCK_F: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Compute a tile of rows and features."""
    row_tile, feature_tile = _near_each_other(tl.cdiv(rows, BLOCK_R), tl.cdiv(FEATURES, BLOCK_F), GROUP)
    row = row_tile * BLOCK_R + tl.arange(0, BLOCK_R)
    feature = feature_tile * BLOCK_F + tl.arange(0, BLOCK_F)
    k = tl.arange(0, BLOCK_K)
    # Past the end the last row is read again, which needs no mask. 64-bit offsets: two videos of 75,600 tokens and 14,336
    # features pass 2**31 values.
    x_at = x + tl.minimum(row, rows - 1).to(tl.int64)[:, None] * x_row + k[None, :] * x_column
    weight_at = (
        weight + tl.minimum(feature, FEATURES - 1).to(tl.int64)[None, :] * weight_row + k[:, None] * weight_column
    )
    total = tl.zeros((BLOCK_R, BLOCK_F), tl.float32)
    for first in tl.range(0, INNER, BLOCK_K):
        if INNER % BLOCK_K == 0:
            left, right = tl.load(x_at), tl.load(weight_at)
        else:
            left = tl.load(x_at, mask=(first + k < INNER)[None, :], other=0.0)
            right = tl.load(weight_at, mask=(first + k < INNER)[:, None], other=0.0)
        if BY_HAND:  # the interpreter multiplies bfloat16 as the integers that it keeps them in
            total += tl.dot(left.to(tl.float32), right.to(tl.float32), input_precision="ieee")
        else:
            total = tl.dot(left, right, total)
        x_at += BLOCK_K * x_column
        weight_at += BLOCK_K * weight_column
    if bias is not None:
        total += tl.load(bias + feature, mask=feature < FEATURES, other=0.0).to(tl.float32)[None, :]
    activated = rounded(_gelu(total), out.dtype.element_ty, BY_HAND)
    inside = (row < rows)[:, None] & (feature < FEATURES)[None, :]
    tl.store(out + row.to(tl.int64)[:, None] * FEATURES + feature[None, :], activated, mask=inside)


@_jit
def _near_each_other(row_tiles, feature_tiles, GROUP: tl.constexpr):
    """Return the program's tile so that programs of one time share rows and features: GROUP rows of tiles, column by column."""
    program, in_group = tl.program_id(0), GROUP * feature_tiles
    first = program // in_group * GROUP
    height = tl.minimum(row_tiles - first, GROUP)
    return first + program % in_group % height, program % in_group // height


@_jit
def _gelu(z):
    """0.5 z (1 + tanh(u)) is z / (1 + exp(-2 u)), u being sqrt(2 / pi) (z + 0.044715 z^3)."""
    return z / (1.0 + tl.exp(-1.5957691216057308 * (z + 0.044715 * z * z * z)))
