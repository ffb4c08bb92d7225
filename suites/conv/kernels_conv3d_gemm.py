"""The two implicit GEMMs as implementations of a causal convolution: Triton's and Gluon's, and where each can be used."""

import kernels_conv3d
import kernels_conv3d_torch as forms
import torch
from kernels_conv3d import implicit_gemm, pack_weight

try:
    import kernels_conv3d_gluon
except ImportError:
    kernels_conv3d_gluon = None


def implicit(x, cache, weight, bias, stride, padding, packed):
    """Convolve as an implicit GEMM in Triton."""
    cout, _, *kernel = weight.shape
    layout = forms.layout_of(x)
    return implicit_gemm(x, cache, packed, bias, kernel, cout, stride, padding, layout, kernels_conv3d.convolve)


def implicit_gluon(x, cache, weight, bias, stride, padding, packed):
    """Convolve as the same implicit GEMM in Gluon, for Hopper."""
    cout, _, *kernel = weight.shape
    layout = forms.layout_of(x)
    return implicit_gemm(x, cache, packed, bias, kernel, cout, stride, padding, layout, kernels_conv3d_gluon.convolve)


def implicit_weight(weight, bias):
    return {"packed": pack_weight(weight)}


def implicit_valid(x, stride, **_):
    if not hasattr(kernels_conv3d.tl, "make_tensor_descriptor"):
        return "this Triton has no tensor descriptors, expected 3.4 or newer"
    if stride[1:] != (1, 1):
        return "it has no spatial stride"
    if x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return f"it has no products of {x.dtype}"
    return True


def gluon_valid(x, stride, **_):
    if kernels_conv3d_gluon is None:
        return "this Triton has no Gluon for Hopper, expected 3.6 or newer"
    return implicit_valid(x, stride)
