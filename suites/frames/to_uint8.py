"""A decoder's floats become the bytes of frames.

The plain form takes values from [-1, 1] to [0, 1] on the device, copies floats to the host and does the rest there. Done
on the device instead, it is one pass, and the copy is of bytes: a quarter of float32's.

The contract: `x` is [batch, channels, frames, height, width], the result uint8 [batch, frames, height, width, channels],
packed, on the host or (`to`) on the device:

    unit = clamp(x / 2 + 0.5, 0, 1), rounded to x's dtype; level = unit * 255, in float32

Then `rounding` is part of the contract: "round" is to the nearest level, ties to the even one, as where frames become
images; "truncate" drops the fraction, as where they are handed to an encoder. The two differ by one level in about half
of the pixels, so that no tolerance may cover both. NaN becomes 0: in C its cast has no defined value, on hosts and
devices it has been 0.

Every implementation rounds where the plain one does, which is what makes them equal to the bit. With bfloat16 a form that
computes in float32 throughout is nearer to the exact value, and gives another picture: so does torch.compile (2.13, on a
CPU: one value in five is a level off when rounded, one in eleven when truncated), and is refused.
"""

from __future__ import annotations

import numpy as np
import torch
from frames_data import video
from kernels_frames import quantised

from pairbench import EXACT, Claim, Cost, Operator, Variant, grid


def inputs(
    make,
    frames,
    height,
    width,
    dtype,
    batch=1,
    channels=3,
    rounding="round",
    to="host",
    data="uniform",
    layout="contiguous",
):
    return {
        "x": video(make, batch, channels, frames, height, width, dtype, data, layout),
        "rounding": rounding,
        "to": to,
    }


def cost(frames, height, width, dtype, batch=1, channels=3, **_):
    """Of the pass on the device: what a copy to the host costs is no business of its memory."""
    values = batch * channels * frames * height * width
    return Cost(flops=3.0 * values, bytes=float(values * (getattr(torch, dtype).itemsize + 1)))


# -- the plain form, and others ---------------------------------------------------------------------------------------


def published(x, rounding, to):
    """Map to [0, 1] on the device, copy floats, and quantise on the host in NumPy, one video of the batch after another.

    For frames that stay on the device, the same steps there.
    """
    if to == "device":
        unit = (x * 0.5 + 0.5).clamp(0, 1).permute(0, 2, 3, 4, 1).float()
        level = unit * 255
        return (level.round() if rounding == "round" else level).to(torch.uint8).contiguous()
    units = [(one.permute(1, 0, 2, 3) * 0.5 + 0.5).clamp(0, 1) for one in x]
    level = np.stack([unit.cpu().permute(0, 2, 3, 1).float().numpy() for unit in units]) * np.float32(255)
    with np.errstate(invalid="ignore"):
        frames = (level.round() if rounding == "round" else level).astype(np.uint8)
    return torch.from_numpy(np.ascontiguousarray(frames))


def host_torch(x, rounding, to):
    """Copy the same floats, and quantise on the host with PyTorch's threads."""
    level = (x * 0.5 + 0.5).clamp_(0, 1).cpu().float().mul(255)
    level = level.round_() if rounding == "round" else level
    return level.to(torch.uint8).permute(0, 2, 3, 4, 1).contiguous()


def on_device(x, rounding, to):
    """Quantise on the device, operator by operator, in place where there is a copy already; bytes are what is permuted."""
    return _handed_over(_levels(x, rounding).permute(0, 2, 3, 4, 1).contiguous(), to)


def frame_by_frame(x, rounding, to):
    """The same for one frame after another, so that no temporary is larger than a frame."""
    batch, channels, frames, height, width = x.shape
    out = torch.empty((batch, frames, height, width, channels), dtype=torch.uint8, device=x.device)
    for frame in range(frames):
        out[:, frame] = _levels(x[:, :, frame], rounding).permute(0, 2, 3, 1)
    return _handed_over(out, to)


def _levels(x, rounding):
    level = (x * 0.5).add_(0.5).clamp_(0, 1).float().mul_(255)
    return (level.round_() if rounding == "round" else level).to(torch.uint8)


def fused(x, rounding, to):
    """One kernel, then one copy of bytes into pinned memory."""
    return _handed_over(quantised(x, rounding), to)


def fused_pageable(x, rounding, to):
    """One kernel, then a copy into ordinary memory."""
    return quantised(x, rounding).cpu()


def _handed_over(frames, to):
    """Copy to the host where it is asked for; pinned memory is kept by PyTorch's allocator from call to call."""
    if to == "device" or not frames.is_cuda:
        return frames
    return torch.empty(frames.shape, dtype=torch.uint8, pin_memory=True).copy_(frames)


def to_the_host(to, **_):
    return to == "host" or "the frames stay on the device"


def fits_kernel(x, **_):
    if x.shape[1] * x.shape[3] * x.shape[4] >= 2**31 - 1024:
        return "a frame of 2**31 values; the kernel counts them in 32 bits"
    return True


def fits_kernel_to_host(x, to, **_):
    return to_the_host(to) if to_the_host(to) is not True else fits_kernel(x)


def counted_thresholds(x, rounding, to):
    """Count the levels whose lower end a value reaches, in float64: no multiplication with 255, no rounding, no cast of it."""
    ends = torch.arange(1, 256, dtype=torch.float64, device=x.device) - (0.5 if rounding == "round" else 0.0)
    levels = torch.bucketize(x.nan_to_num(-1.0), ends * 2 / 255 - 1, out_int32=True, right=True)
    frames = levels.to(torch.uint8).permute(0, 2, 3, 4, 1).contiguous()
    return frames.cpu() if to == "host" else frames


# -- deliberately wrong -----------------------------------------------------------------------------------------------


def other_rounding(x, rounding, to):
    """Truncate where rounding was declared, or the reverse."""
    return published(x, "truncate" if rounding == "round" else "round", to)


def grey(x, rounding, to):
    """Give every pixel the same level: never further off than 128, which a limit of 180 levels lets pass."""
    return published(torch.zeros_like(x), rounding, to)


def one_level_off(x, rounding, to):
    """Be brighter by a level wherever there is room."""
    frames = published(x, rounding, to)
    return frames + (frames < 255)


def wraps(x, rounding, to):
    """Forget to clamp: what is out of range comes round at the other end."""
    level = x.float() * 127.5 + 127.5
    frames = (level.round() if rounding == "round" else level).to(torch.int32).to(torch.uint8)
    return _on(frames.permute(0, 2, 3, 4, 1).contiguous(), to)


def not_denormalised(x, rounding, to):
    """Take values from [-1, 1] for values from [0, 1]."""
    return published(x * 2 - 1, rounding, to)


def times_256(x, rounding, to):
    """Cut [0, 1] into 256 equal parts: another quantisation than levels of 1/255."""
    unit = (x.float() * 0.5 + 0.5).clamp(0, 1).nan_to_num(0.0)
    return _on((unit * 256).clamp(max=255).to(torch.uint8).permute(0, 2, 3, 4, 1).contiguous(), to)


def reversed_channels(x, rounding, to):
    return published(x, rounding, to).flip(-1)


def reshaped(x, rounding, to):
    """Reshape planes into pixels where they have to be permuted."""
    batch, channels, frames, height, width = x.shape
    return published(x, rounding, to).permute(0, 4, 1, 2, 3).reshape(batch, frames, height, width, channels)


def half_precision(x, rounding, to):
    return published(x.bfloat16(), rounding, to)


def _on(frames, to):
    return frames.cpu() if to == "host" else frames


def some_values(x, **_):
    return x.numel() > 0


def some_between(x, **_):
    """Many values within the range, where every quantisation of its own shows."""
    return int(((x > -0.9) & (x < 0.9)).sum()) >= 24


def some_between_in_float(x, **_):
    return x.dtype in (torch.float32, torch.float64) and some_between(x)


def some_beyond(x, **_):
    return bool(((x.abs() > 1.02) & x.isfinite()).any())


def several_channels(x, **_):
    return x.shape[1] > 1 and some_between(x)


# -- cases ------------------------------------------------------------------------------------------------------------

TINY = dict(frames=5, height=9, width=7)
PAIR = dict(frames=2, height=6, width=5)
HD = dict(height=720, width=1280)
ROUNDINGS, PLACES = ("round", "truncate"), ("host", "device")

EDGE = [
    *(dict(TINY, rounding=rounding, to=to, dtype="float32") for rounding in ROUNDINGS for to in PLACES),
    *(
        dict(PAIR, rounding=rounding, data=data, dtype=dtype)
        for rounding in ROUNDINGS
        for data in ("special", "ties")
        for dtype in ("float32", "float16", "bfloat16")
    ),
    dict(TINY, data="special", to="device", dtype="bfloat16"),
    dict(TINY, data="special", dtype="float64"),
    dict(TINY, frames=0, dtype="float32"),
    dict(TINY, frames=1, dtype="float32"),
    dict(TINY, height=1, width=1, dtype="float32"),
    dict(TINY, batch=2, dtype="float32"),
    dict(TINY, batch=2, channels=1, dtype="float16"),
    dict(TINY, channels=4, dtype="float32"),
    dict(TINY, batch=2, layout="frames_first", dtype="bfloat16"),
    dict(TINY, batch=2, layout="channels_last_3d", dtype="bfloat16"),
    dict(TINY, batch=2, layout="cropped", dtype="bfloat16"),
    dict(frames=1, height=24, width=43, dtype="bfloat16"),  # a frame of more than one block of the kernel
]

SMOKE = [
    *grid(frames=[5], height=[18], width=[32], rounding=ROUNDINGS, dtype=["float32", "bfloat16"]),
    dict(frames=5, height=18, width=32, to="device", dtype="float32"),
]

REAL = [
    *grid(frames=[17], height=[480], width=[832], to=PLACES, dtype=["float32", "bfloat16"]),
    *(dict(HD, frames=29, to=to, dtype="float32") for to in PLACES),
    *(dict(HD, frames=81, to=to, dtype=dtype) for to in PLACES for dtype in ("float32", "bfloat16")),
    dict(frames=17, height=480, width=832, rounding="truncate", dtype="bfloat16"),
    dict(HD, frames=81, layout="frames_first", to="device", dtype="bfloat16"),
    dict(HD, frames=81, layout="channels_last_3d", to="device", dtype="bfloat16"),
]

CLAIMED = dict(frames=121, height=1088, width=1920)
HEADLINE = [
    dict(CLAIMED, to="host", dtype="bfloat16"),
    *(dict(CLAIMED, to="device", dtype=dtype) for dtype in ("float32", "bfloat16")),
]

frames_to_uint8 = Operator(
    "frames_to_uint8",
    baseline=published,
    variants={
        "host_torch": Variant(host_torch, valid=to_the_host),
        "on_device": on_device,
        "frame_by_frame": frame_by_frame,
        "triton": Variant(fused, valid=fits_kernel, needs="triton"),
        "triton_pageable": Variant(fused_pageable, valid=fits_kernel_to_host, needs="triton"),
    },
    inputs=inputs,
    cases={"edge": EDGE, "smoke": SMOKE, "real": REAL, "headline": HEADLINE},
    impostors={
        "other_rounding": Variant(other_rounding, valid=some_between),
        "grey": Variant(grey, valid=some_between),
        "one_level_off": Variant(one_level_off, valid=some_between),
        "wraps": Variant(wraps, valid=some_beyond),
        "not_denormalised": Variant(not_denormalised, valid=some_between),
        "times_256": Variant(times_256, valid=some_between),
        "reversed_channels": Variant(reversed_channels, valid=several_channels),
        "reshaped": Variant(reshaped, valid=several_channels),
        "half_precision": Variant(half_precision, valid=some_between_in_float),
    },
    oracle=counted_thresholds,
    tolerance=EXACT,
    cost=cost,
    source="maxdiffusion #411; diffusers VideoProcessor.postprocess_video, export_to_video",
    claims=[
        Claim(
            latency_ms=(1284.0, 9.566),
            device="NVIDIA H200",
            source="vllm-omni #7000",
            cases=[dict(CLAIMED, to="host", dtype="bfloat16")],
            shape="121 frames of 1088 x 1920; neither the dtype nor where the bytes end up is said",
            unmet="758 MB in 14.9 ms are 51 GB/s, what PCIe 5.0 brings to the host; on the device they take 1.06 ms",
        ),
        Claim(
            latency_ms=(9.616, 5.776),
            device="NVIDIA H200",
            source="vllm-omni #7000",
            cases=[dict(CLAIMED, to="device", dtype="bfloat16")],
            shape="the same on the device, with and without a temporary in float32",
        ),
        Claim(
            peak_gib=(3.532, 0.707),
            device="NVIDIA H200",
            source="vllm-omni #7000",
            cases=[dict(CLAIMED, to="device", dtype="bfloat16")],
            shape="the same on the device, with and without a temporary in float32",
        ),
        Claim(
            latency_ms=(5991.0, 2015.0),
            device="NVIDIA A100",
            source="FastVideo #1362",
            cases=[dict(frames=29, height=720, width=1280, to="host", dtype="float32")],
        ),
        Claim(
            latency_ms=(580.0, 290.0),
            device="NVIDIA H100",
            source="FastVideo #1362",
            cases=grid(frames=[81], height=[720], width=[1280], to=["host"], dtype=["float32", "bfloat16"]),
            shape="77 frames; ours are 81",
        ),
    ],
)
