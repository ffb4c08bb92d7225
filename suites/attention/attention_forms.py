"""Attention by the kernels that torch offers, each by its name, and by FlashAttention 3: tensors are [batch, tokens, heads, dim].

`scaled_dot_product_attention` picks a kernel by itself, and another one in the next release. Here it never may: what is
compared has to be what the name says. What torch.compile makes of the math kernel is its own business: it knows those products, and
puts a fused kernel in their place.
"""

from __future__ import annotations

import importlib.util

import torch
import torch.nn.functional as F
from attention_blocks import segments
from torch.nn.attention import SDPBackend, sdpa_kernel

_compiled = {}


def sdpa(q, k, v, backend, mask=None):
    """Attend by one kernel; the result is contiguous, as the projection that follows wants it."""
    with sdpa_kernel(backend):
        y = F.scaled_dot_product_attention(
            q.transpose(1, 2),
            k.transpose(1, 2),
            v.transpose(1, 2),
            attn_mask=None if mask is None else mask[None, None],
        )
    return y.transpose(1, 2).contiguous()


def per_block(q, k, v, segments, attend):
    """Attend block after block to the keys that are seen, which need no mask then; two intervals are copied together."""
    if not segments:
        return torch.empty_like(q, memory_format=torch.contiguous_format)
    return torch.cat([attend(q[:, b:e], _seen(k, spans), _seen(v, spans)) for b, e, spans in segments], dim=1)


def _seen(x, spans):
    pieces = [x[:, begin:end] for begin, end in spans]
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=1)


def flex(q, k, v, block_mask):
    """Attend by FlexAttention, compiled."""
    y = _flex_for(q.device)(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), block_mask=block_mask)
    return y.transpose(1, 2)


def _flex_for(device):
    """Return FlexAttention, compiled for a GPU; a CPU computes it as traced, for Inductor takes six seconds a shape there."""
    from torch.nn.attention.flex_attention import flex_attention

    if torch.compiler.is_compiling():
        return flex_attention
    backend = "inductor" if device.type == "cuda" else "eager"
    if backend not in _compiled:
        _compiled[backend] = torch.compile(flex_attention, dynamic=False, backend=backend)
    return _compiled[backend]


_FLASH3 = next((name for name in ("flash_attn_interface", "fa3_fwd_interface") if importlib.util.find_spec(name)), None)
"""The authors' own build of FlashAttention 3, or else the wheels `fa3-fwd` of its forward half."""


def flash3(q, k, v):
    """Attend by FlashAttention 3, which is a package of its own; earlier releases return the sums of exponentials too."""
    if _FLASH3 == "fa3_fwd_interface":
        from fa3_fwd_interface import flash_attn_func
    else:
        from flash_attn_interface import flash_attn_func

    y = flash_attn_func(q, k, v, causal=False)
    return y[0] if isinstance(y, tuple) else y


# -- which kernel takes what ------------------------------------------------------------------------------------------

_HALF = (torch.float16, torch.bfloat16)
_LARGEST_SCORES = 40e9
"""Bytes; the math kernel holds them three times."""


def flash_valid(q, k, **_):
    if not q.numel() or not k.numel():
        return "no tokens; the kernel takes none"
    if q.is_cuda and q.dtype not in _HALF:
        return f"{_name(q)}; on a GPU the kernel takes half precision"
    return _taken(q, k, "flash")


def cudnn_valid(q, k, **_):
    if not q.numel() or not k.numel():
        return "no tokens; the kernel takes none"
    if q.dtype not in _HALF:
        return f"{_name(q)}; the kernel takes half precision"
    return _taken(q, k, "cudnn")


def efficient_valid(q, k, **_):
    if not q.numel() or not k.numel():
        return "no tokens; the kernel takes none"
    if q.dtype not in (*_HALF, torch.float32):
        return f"{_name(q)}; the kernel takes float32 and half precision"
    return _taken(q, k, "efficient")


def in_blocks(valid):
    """Return a condition on a whole clip: that every block meets the condition, and there are some."""

    def every(q, k, layout, **_):
        found = [valid(q[:, b:e], k[:, : sum(end - begin for begin, end in at)]) for b, e, at in segments(layout)]
        return next((reason for reason in found if reason is not True), True) if found else valid(q, k)

    return every


def _taken(q, k, kernel):
    """Ask torch, which has more conditions than one wants to repeat: of head sizes, of lengths, of GPUs."""
    if not q.is_cuda:
        return True
    q, k = q.transpose(1, 2), k.transpose(1, 2)
    asked = torch.backends.cuda.SDPAParams(q, k, k, None, 0.0, False, False)
    taken = getattr(torch.backends.cuda, f"can_use_{kernel}_attention")(asked)
    return taken or f"torch says that the kernel does not take {list(q.shape)} and {list(k.shape)} here"


def flash3_valid(q, k, **_):
    if _FLASH3 is None:
        return "FlashAttention 3 is not installed: neither flash_attn_interface nor the wheels fa3-fwd"
    if torch.cuda.get_device_capability(q.device)[0] != 9:
        return "not a Hopper GPU, which the kernel is made for"
    if not q.numel() or not k.numel():
        return "no tokens; the kernel takes none"
    if _FLASH3 == "fa3_fwd_interface":
        return q.dtype == torch.bfloat16 or f"{_name(q)}; fa3-fwd is built for bfloat16"
    return q.dtype in _HALF or f"{_name(q)}; the kernel takes half precision"


def flex_valid(q, k, **_):
    if not q.numel() or not k.numel():
        return "no tokens; a block mask needs some"
    if q.dtype == torch.float64:
        return "float64; the kernel accumulates in float32"
    if q.shape[-1] < 16:
        return f"{q.shape[-1]} features a head; the kernel takes 16 and more"
    return True


def math_valid(q, k, **_):
    """Scores are held in float32, or in float64 where that is what came."""
    held = q.shape[0] * q.shape[2] * q.shape[1] * k.shape[1] * max(4, q.element_size())
    if held > _LARGEST_SCORES:
        return f"{held / 1e9:.0f} GB of scores, of which three copies are held"
    return True


def _name(x):
    return str(x.dtype).removeprefix("torch.")


# -- what torch takes by itself: asked in every call, and so by dtypes alone -----------------------------------------


def backend_with_mask(q):
    """Return the kernel that `scaled_dot_product_attention` takes on a GPU for a dense mask, which flash does not know."""
    efficient = q.is_cuda and q.numel() and q.dtype in (*_HALF, torch.float32)
    return SDPBackend.EFFICIENT_ATTENTION if efficient else SDPBackend.MATH


def backend_without_mask(q):
    """Return the kernel that `scaled_dot_product_attention` takes without a mask: flash for half precision."""
    if q.numel() and (not q.is_cuda or q.dtype in _HALF):
        return SDPBackend.FLASH_ATTENTION
    return backend_with_mask(q)
