"""The global switches that change what a kernel computes or how fast: pinned to the same values for all, watched, recorded."""

import contextlib
import functools
import os
import sys
import tracemalloc
import warnings
from collections.abc import Callable
from typing import Any

import torch

from pairbench.execute.worker.process_state import STATE, Flag, leave

_VARIABLES = (
    *("CUDA_", "CUDNN_", "CUBLAS_", "NVIDIA_", "NCCL_", "TORCH", "PYTORCH_", "TRITON_"),
    *("OMP_", "MKL_", "KMP_", "ATEN_", "DNNL_", "ONEDNN_"),
)
_PRIVATE = ("CUDA_VISIBLE_DEVICES", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TORCHINDUCTOR_COMPILE_THREADS")
"""Variables that pairbench sets for its workers, or that do not affect results."""


def pin_flags(*, tf32: bool) -> None:
    """Pin every switch of precision. Torch's default allows TF32 for convolutions alone, where products that replace them would look slower."""
    # First the newer names: where those are used as well, torch reads the old ones no more.
    for name in _NEWER:
        if name in _FLAGS:
            _FLAGS[name].write("none")
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = False


@functools.cache
def order_attention(device: torch.device) -> None:
    """Have torch order its attention kernels for a GPU; else the first call of attention in a process would seem to have changed a flag."""
    if device.type == "cuda":
        with contextlib.suppress(Exception):  # a torch or a GPU that has no choice has no order either
            tokens = torch.empty(1, 1, 16, 64, dtype=torch.float16, device=device)
            torch._fused_sdp_choice(tokens, tokens, tokens)


def _attribute(owner: Any, name: str) -> Flag:
    return Flag(functools.partial(getattr, owner, name), functools.partial(setattr, owner, name))


_SMALLEST = sys.float_info.min
_cuda, _cudnn, _mkldnn = torch.backends.cuda, torch.backends.cudnn, torch.backends.mkldnn
_matmul, _C = _cuda.matmul, torch._C

_RECORDED: dict[str, Flag] = {
    "matmul.allow_tf32": _attribute(_matmul, "allow_tf32"),
    "cudnn.allow_tf32": _attribute(_cudnn, "allow_tf32"),
    "cudnn.benchmark": _attribute(_cudnn, "benchmark"),
    "cudnn.deterministic": _attribute(_cudnn, "deterministic"),
    "cudnn.enabled": _attribute(_cudnn, "enabled"),
    "fp16_reduced_precision_reduction": _attribute(_matmul, "allow_fp16_reduced_precision_reduction"),
    "bf16_reduced_precision_reduction": _attribute(_matmul, "allow_bf16_reduced_precision_reduction"),
    "deterministic_algorithms": Flag(torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    "default_dtype": Flag(
        lambda: str(torch.get_default_dtype()),
        lambda name: torch.set_default_dtype(getattr(torch, name.removeprefix("torch."))),
    ),
    "grad_enabled": Flag(torch.is_grad_enabled, torch.set_grad_enabled),
    "threads": Flag(torch.get_num_threads, torch.set_num_threads),
}
"""The flags of a run's environment. One more name would be another environment, and so a new era in all histories."""

_WATCHED: dict[str, Callable[[], Flag]] = {
    "fp16_accumulation": lambda: _attribute(_matmul, "allow_fp16_accumulation"),
    "cudnn.benchmark_limit": lambda: _attribute(_cudnn, "benchmark_limit"),
    "float32_matmul_precision": lambda: Flag(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "deterministic_warn_only": lambda: Flag(
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda value: torch.use_deterministic_algorithms(value[0], warn_only=value[1]),
    ),
    "fill_uninitialized_memory": lambda: _attribute(torch.utils.deterministic, "fill_uninitialized_memory"),
    # Torch can set but not read whether this thread flushes denormals to zero.
    "flush_denormal": lambda: Flag(lambda: _SMALLEST / 2.0 == 0.0, torch.set_flush_denormal),
    "mkldnn.enabled": lambda: Flag(torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled),
    "mkldnn.deterministic": lambda: _attribute(_mkldnn, "deterministic"),
    "fp32_precision": lambda: _attribute(torch.backends, "fp32_precision"),
    "cudnn.fp32_precision": lambda: _attribute(_cudnn, "fp32_precision"),
    "mkldnn.fp32_precision": lambda: _attribute(_mkldnn, "fp32_precision"),
    "mkldnn.matmul.fp32_precision": lambda: _attribute(_mkldnn.matmul, "fp32_precision"),
    "mkldnn.conv.fp32_precision": lambda: _attribute(_mkldnn.conv, "fp32_precision"),
    "mkldnn.rnn.fp32_precision": lambda: _attribute(_mkldnn.rnn, "fp32_precision"),
    "nnpack.enabled": lambda: Flag(torch._C._get_nnpack_enabled, torch._C._set_nnpack_enabled),
    "flash_sdp": lambda: Flag(_cuda.flash_sdp_enabled, _cuda.enable_flash_sdp),
    "mem_efficient_sdp": lambda: Flag(_cuda.mem_efficient_sdp_enabled, _cuda.enable_mem_efficient_sdp),
    "math_sdp": lambda: Flag(_cuda.math_sdp_enabled, _cuda.enable_math_sdp),
    "cudnn_sdp": lambda: Flag(_cuda.cudnn_sdp_enabled, _cuda.enable_cudnn_sdp),
    "math_sdp_reduction": lambda: Flag(
        _cuda.fp16_bf16_reduction_math_sdp_allowed, _cuda.allow_fp16_bf16_reduction_math_sdp
    ),
    "sdp_priority": lambda: Flag(lambda: tuple(torch._C._get_sdp_priority_order()), torch._C._set_sdp_priority_order),
    "mha_fastpath": lambda: Flag(torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled),
    "linalg_library": lambda: Flag(torch._C._get_linalg_preferred_backend, torch._C._set_linalg_preferred_backend),
    "blas_library": lambda: Flag(torch._C._get_blas_preferred_backend, torch._C._set_blas_preferred_backend),
    "quantized.engine": lambda: _attribute(torch.backends.quantized, "engine"),
    "opt_einsum.enabled": lambda: _attribute(torch.backends.opt_einsum, "enabled"),
    "opt_einsum.strategy": lambda: _attribute(torch.backends.opt_einsum, "strategy"),
    "inference_mode": lambda: Flag(torch.is_inference_mode_enabled, leave),
    "autocast.cpu": lambda: _autocast("cpu"),
    "autocast.cuda": lambda: _autocast("cuda"),
    "autocast.cache": lambda: Flag(torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    "anomaly_mode": lambda: Flag(torch.is_anomaly_enabled, torch.set_anomaly_enabled),
    "autograd": lambda: Flag(lambda: (_C._is_multithreading_enabled(), _C._is_view_replay_enabled()), leave),
    "tracing by torch": lambda: Flag(lambda: (_C._get_tracing_state() is None, _C._is_torch_function_enabled()), leave),
    "functorch_level": lambda: Flag(_C._functorch.maybe_current_level, leave),
    "warn_always": lambda: Flag(torch.is_warn_always_enabled, torch.set_warn_always),
    "sparse_invariants": lambda: Flag(torch.sparse.check_sparse_tensor_invariants.is_enabled, leave),
    "tracemalloc": lambda: Flag(tracemalloc.is_tracing, lambda _: tracemalloc.stop()),
    # What `torch.set_default_device` sets is such a mode, too.
    "modes": lambda: Flag(lambda: (torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()), leave),
    "stream": lambda: Flag(_stream, _set_stream),
}
_NEWER = tuple(name for name in _WATCHED if name.endswith("fp32_precision"))
"""Switches of precision beside those of TF32: `none` lets the processor compute in IEEE float32."""
_UNREADABLE = "unreadable"
"""The value of a flag that torch refuses to read, as when its old and its new names for TF32 were both used."""


def _autocast(kind: str) -> Flag:
    def write(value: tuple[bool, torch.dtype]) -> None:
        torch.set_autocast_enabled(kind, value[0])
        torch.set_autocast_dtype(kind, value[1])

    return Flag(lambda: (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)), write)


def _stream() -> Any:
    return (torch.cuda.current_device(), torch.cuda.current_stream()) if torch.cuda.is_initialized() else None


def _set_stream(value: Any) -> None:
    if value is not None:
        torch.cuda.set_device(value[0])
        torch.cuda.set_stream(value[1])


def _known() -> dict[str, Flag]:
    found = dict(_RECORDED)
    items: dict[str, Flag | Callable[[], Flag]] = {**_WATCHED, **STATE}
    for name, item in items.items():
        with contextlib.suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("error")  # what is deprecated has a newer name in the list
            flag = item if isinstance(item, Flag) else item()
            flag.read()
            found[name] = flag
    return found


_FLAGS = _known()
_stuck: set[str] = set()


def read_flags() -> dict[str, Any]:
    return {name: flag.read() for name, flag in _RECORDED.items()}


def watched_flags() -> dict[str, Any]:
    return {name: _value(flag) for name, flag in _FLAGS.items()}


def _value(flag: Flag) -> Any:
    try:
        return flag.read()
    except Exception:
        return _UNREADABLE


def changed_flags(before: dict[str, Any]) -> str | None:
    now = {name: _value(_FLAGS[name]) for name in before}
    said = (_said(name, was, now[name]) for name, was in before.items() if was != now[name])
    return ", ".join(filter(None, said)) or None


def put_back_flags(before: dict[str, Any]) -> str | None:
    """Restore the flags, and return a sentence on those that somebody has changed, or None."""
    if {name: _value(_FLAGS[name]) for name in before} == before:
        return None
    changed = changed_flags(before)  # some are nobody's fault
    restore_flags(before)
    return changed and f"changes global flags, which are pinned alike for all: {changed}"


def _said(name: str, before: Any, now: Any) -> str:
    said = _FLAGS[name].said
    return said(before, now) if said and _UNREADABLE not in (before, now) else f"{name} {before} -> {now}"


def restore_flags(flags: dict[str, Any]) -> None:
    """Restore the flags; those that cannot be restored make the process `stuck`."""
    for name, value in flags.items():
        flag = _FLAGS[name]
        if _value(flag) != value:
            with contextlib.suppress(Exception):
                flag.write(value)
    for name, value in flags.items():
        if (now := _value(_FLAGS[name])) != value and _said(name, value, now):
            _stuck.add(name)


def stuck() -> bool:
    """Return whether a flag could not be restored, so that this process may measure nothing more."""
    return bool(_stuck)


def read_variables() -> dict[str, str]:
    names = (name for name in sorted(os.environ) if name.startswith(_VARIABLES) and name not in _PRIVATE)
    return {name: os.environ[name] for name in names}
