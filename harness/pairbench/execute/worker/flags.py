"""The global switches that change what a kernel computes or how fast: pinned to the same values for all, watched, recorded."""

import os
from typing import Any

import torch

_VARIABLES = (
    "CUDA_",
    "CUDNN_",
    "CUBLAS_",
    "NVIDIA_",
    "NCCL_",
    "TORCH",
    "PYTORCH_",
    "TRITON_",
    "OMP_",
    "MKL_",
    "KMP_",
    "ATEN_",
    "DNNL_",
    "ONEDNN_",
)
_PRIVATE = ("CUDA_VISIBLE_DEVICES", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
"""Variables that pairbench sets for its workers, or that have no effect on what is computed."""


def pin_flags(*, tf32: bool) -> None:
    """Set every switch that affects precision to a stated value."""
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = False


def read_flags() -> dict[str, Any]:
    """Return the present values of the switches, by name."""
    return {
        "matmul.allow_tf32": torch.backends.cuda.matmul.allow_tf32,
        "cudnn.allow_tf32": torch.backends.cudnn.allow_tf32,
        "cudnn.benchmark": torch.backends.cudnn.benchmark,
        "cudnn.deterministic": torch.backends.cudnn.deterministic,
        "cudnn.enabled": torch.backends.cudnn.enabled,
        "fp16_reduced_precision_reduction": torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
        "bf16_reduced_precision_reduction": torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "default_dtype": str(torch.get_default_dtype()),
        "grad_enabled": torch.is_grad_enabled(),
        "threads": torch.get_num_threads(),
    }


def changed_flags(before: dict[str, Any]) -> str | None:
    """Return which switches are no longer as they were, or None."""
    now = read_flags()
    changed = [f"{name} {before[name]} -> {now[name]}" for name in before if before[name] != now[name]]
    return ", ".join(changed) or None


def restore_flags(flags: dict[str, Any]) -> None:
    """Set the switches back to the values that `read_flags` returned."""
    torch.backends.cuda.matmul.allow_tf32 = flags["matmul.allow_tf32"]
    torch.backends.cudnn.allow_tf32 = flags["cudnn.allow_tf32"]
    torch.backends.cudnn.benchmark = flags["cudnn.benchmark"]
    torch.backends.cudnn.deterministic = flags["cudnn.deterministic"]
    torch.backends.cudnn.enabled = flags["cudnn.enabled"]
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = flags["fp16_reduced_precision_reduction"]
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = flags["bf16_reduced_precision_reduction"]
    torch.use_deterministic_algorithms(flags["deterministic_algorithms"])
    torch.set_default_dtype(getattr(torch, flags["default_dtype"].removeprefix("torch.")))
    torch.set_grad_enabled(flags["grad_enabled"])
    torch.set_num_threads(flags["threads"])


def read_variables() -> dict[str, str]:
    """Return the environment variables that CUDA, torch, Triton and the thread pools listen to."""
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(_VARIABLES) and name not in _PRIVATE
    }
