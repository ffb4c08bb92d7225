"""What kind of work a piece of a breakdown is, by its operators, its kernel and its module: names in, a word out."""

import re
from collections.abc import Mapping

from pairbench.model.breakdown import SourceLine, WorkTotal

KINDS = (
    "attention",
    "norm",
    "matmul",
    "convolution",
    "cache",
    "copy",
    "elementwise",
    "other",
    "compiled",
    "host",
    "unknown",
)
"""The kinds that the time of a call is split into: `copy` holds casts too; `compiled` is what a compiler made for a
CPU, where no kernel's name says of what; `host` is a CPU's time between operators, in Python; `unknown` is what
nothing is known to have launched, and whose kernel's name says nothing."""

_OPERATORS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        (
            "attention",
            r"scaled_dot_product|flash_attention|efficient_attention|cudnn_attention|flex_attention|multi_head_att",
        ),
        ("norm", r"(layer|group|batch|instance|rms)_?norm|linalg_vector_norm"),
        ("convolution", r"conv"),
        (
            "matmul",
            r"^_?(addmm|mm|bmm|baddbmm|matmul|linear|einsum|addmv|mv|dot|scaled_mm|grouped_mm|addbmm|tensordot)",
        ),
        ("cache", r"^(index_copy|index_put|_index_put_impl|slice_scatter|scatter|masked_scatter)"),
        (
            "copy",
            r"^(_?to(_copy)?|copy|clone|contiguous|cat|concat|stack|roll|constant_pad|pad|repeat|type_as|reshape|flatten)(_|$)",
        ),
        (
            "other",
            r"^(embedding|index|gather|sort|topk|nonzero|arange|cumsum|item|_local_scalar_dense|rand|normal|uniform|empty|view|slice|select|as_strided|expand|permute|transpose|t$|(un)?squeeze|chunk|split|unbind|narrow|unflatten)",
        ),
    )
)
"""The kind of each operator. Operators are asked from the outermost inward: what a convolution or an einsum copies
is its own work."""

_KERNELS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        # What inductor fuses is named after everything in it.
        ("norm", r"^triton_(poi|per|red)_\w*(rsqrt|norm)"),
        ("elementwise", r"^triton_(poi|per|red)_"),
        ("attention", r"flash|fmha|sdpa|attention|attn"),
        ("norm", r"(layer|group|batch|instance|rms)_?norm|norm_kernel|_norm_"),
        ("convolution", r"conv|fprop|dgrad|wgrad|winograd|nchwtonhwc|nhwctonchw|vol2col|im2col"),
        ("matmul", r"gemm|gemv|nvjet|cutlass|cublas|matmul|splitk|xmma|_mm_|(?<!bi)linear|ffn"),
        ("cache", r"cache"),
        ("copy", r"memcpy|direct_copy|copy_kernel|catarray|transpose|_to_copy|_clone_|constant_pad|_copy_|_cat_"),
        ("elementwise", r"elementwise|pointwise|memset|fill|rope|modulat|gate|reduce_kernel"),
    )
)
"""The kind of each kernel by its name. It is asked where no operator tells: for kernels that Python launches itself,
and for those in a graph."""

_COMPILED = re.compile(r"^(Torch-Compiled Region|CompiledFunction|## )")
_COMPILER = re.compile(r"^(TorchDynamo|Pregraph|AOTDispatcher)")
"""The names of what a compiler puts around what it has compiled, and of what it does itself."""

_NORM = re.compile(r"norm", re.IGNORECASE)
_ATTENTION = re.compile(r"att(n|ention)", re.IGNORECASE)
_INNER_PRODUCT = re.compile(r"^(bmm|baddbmm|matmul|einsum|softmax|_softmax)")
"""The operators that attention written by hand consists of; its projections are `linear` and `mm`."""


def kind_of(piece: WorkTotal, spots: tuple[SourceLine, ...], classes: Mapping[str, str]) -> str:
    """Return the kind of a piece.

    Args:
        piece: of a breakdown.
        spots: that its `spot` is an index of.
        classes: the class of each module by its name.
    """
    if piece.spot is not None and spots[piece.spot].what != "sync":
        return "cache" if spots[piece.spot].what == "cache" else "copy"
    ops = [name for name in piece.ops if not _COMPILED.search(name) and not _COMPILER.search(name)]
    if not ops:
        compiled = piece.kernel is None and piece.ops and _COMPILED.search(piece.ops[-1])
        return "compiled" if compiled else _kind_of_kernel(piece)
    by_operator = next((kind for name in ops for kind, told in _OPERATORS if told.search(name)), None)
    if by_operator in ("attention", "norm", "convolution", "cache", "copy"):
        return by_operator
    own = (piece.module.rpartition(".")[2], classes.get(piece.module, ""))
    if any(_NORM.search(name) for name in own) and by_operator is None:
        return "norm"
    if any(_ATTENTION.search(name) for name in own) and _INNER_PRODUCT.search(ops[0]):
        return "attention"
    if by_operator is not None:
        return by_operator
    # An operator of the suite's own may be anything; its name, or else its kernel's, may tell.
    if "::" in ops[0]:
        return _named(ops[0]) or _kind_of_kernel(piece)
    return "elementwise"


def _kind_of_kernel(piece: WorkTotal) -> str:
    if piece.kernel is None:
        return "host"
    return _named(piece.kernel) or ("other" if piece.known else "unknown")


def _named(name: str) -> str | None:
    return next((kind for kind, told in _KERNELS if told.search(name)), None)
