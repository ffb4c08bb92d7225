"""Small data sets of our own in other people's forms, with the quirks that those forms have."""

import functools
import json
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from pairbench.execute.worker.input_lists import operators_of
from pairbench.model.operator import Operator
from pairbench.suite.modules import load_suite

Write = Callable[..., Path]


def spec(*shape: str, dtype: str = "float32", **more: Any) -> dict[str, Any]:
    return {"shape": list(shape), "dtype": dtype, **more}


def definition(name: str, reference: str, **more: Any) -> dict[str, Any]:
    """Return a definition of one input `x` and one output `y` of M rows and 24 columns; keywords replace its keys."""
    return {
        "name": name,
        "op_type": "other",
        "axes": {"M": {"type": "var"}, "N": {"type": "const", "value": 24}},
        "inputs": {"x": spec("M", "N")},
        "outputs": {"y": spec("M", "N")},
        "reference": textwrap.dedent(reference),
        **more,
    }


def workload(uuid: str, axes: Mapping[str, int], **inputs: Any) -> dict[str, Any]:
    return {
        "uuid": uuid,
        "axes": dict(axes),
        "inputs": {name: {"type": "random"} | given for name, given in inputs.items()},
    }


def solution(
    name: str, of: str, content: str, *, language: str = "python", into: bool = True, **more: Any
) -> dict[str, Any]:
    sources = more.pop("sources", None) or [{"path": "main.py", "content": textwrap.dedent(content)}]
    entry = more.pop("entry_point", "main.py::run")
    made = {"language": language, "target_hardware": ["any"], "entry_point": entry, "destination_passing_style": into}
    return {"name": name, "definition": of, "author": "us", "spec": {**made, **more}, "sources": sources}


def save(path: Path, *documents: Any) -> Path:
    """Write a text as it is, a document as JSON, or several of them as lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [one if isinstance(one, str) else json.dumps(one) for one in documents]
    path.write_text("\n".join(texts) + "\n")
    return path


def safetensors(path: Path, **tensors: torch.Tensor) -> None:
    """Write a file of int32 tensors."""
    save_file({name: value.to(torch.int32) for name, value in tensors.items()}, path)


def only(path: Path, against: Path | str = "") -> Operator:
    (operator,) = load_suite(path, functools.partial(operators_of, against=str(against))).values()
    return operator


@pytest.fixture
def trace_set(tmp_path: Path) -> Path:
    """Return a data set in the form of FlashInfer-Trace with five definitions."""
    root = tmp_path / "set"

    def add(made: dict[str, Any], *workloads: dict[str, Any]) -> None:
        save(root / "definitions" / "other" / f"{made['name']}.json", made)
        lines = [
            {"definition": made["name"], "solution": None, "workload": one, "evaluation": None} for one in workloads
        ]
        save(root / "workloads" / "other" / f"{made['name']}.jsonl", *lines)

    add(
        definition("double", "def run(x):\n    return x * 2\n"),
        workload("11111111-aa", {"M": 3}, x={}),
        workload("22222222-aa", {"M": 8}),
        workload("22222222-bb", {"M": 8}, x={"type": "random"}),
    )
    # A 0-D tensor, a Python number, None, and indices from a file; integers stay integers.
    add(
        definition(
            "gather",
            """
            import torch
            def run(x, rows, scale, factor, nothing):
                assert nothing is None and isinstance(factor, float) and scale.dim() == 0 and rows.dtype == torch.int32
                return x[rows.long()] * scale * factor, rows + 1
            """,
            inputs={
                "x": spec("M", "N"),
                "rows": spec("K", dtype="int32"),
                "scale": spec(),
                "factor": {"shape": None, "dtype": "float32"},
                "nothing": {"shape": None, "dtype": "int32"},
            },
            axes={"M": {"type": "var"}, "N": {"type": "const", "value": 24}, "K": {"type": "var"}},
            outputs={"y": spec("K", "N"), "next": spec("K", dtype="int32")},
        ),
        workload(
            "33333333-aa",
            {"M": 6, "K": 4},
            rows={"type": "safetensors", "path": "blob/workloads/rows.safetensors", "tensor_key": "rows"},
            factor={"type": "scalar", "value": 0.5},
            nothing={"type": "scalar", "value": None},
        ),
        workload(
            "44444444-aa",
            {"M": 6, "K": 4},
            rows={"type": "safetensors", "path": "blob/workloads/gone.safetensors", "tensor_key": "rows"},
        ),
        workload(
            "55555555-aa",
            {"M": 6, "K": 4},
            rows={"type": "safetensors", "path": "blob/workloads/pointer.safetensors", "tensor_key": "rows"},
        ),
        workload("66666666-aa", {"M": 6}),
    )
    (root / "blob" / "workloads").mkdir(parents=True)
    safetensors(root / "blob" / "workloads" / "rows.safetensors", rows=torch.tensor([5, 0, 0, 3]), other=torch.zeros(2))
    save(
        root / "blob" / "workloads" / "pointer.safetensors",
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
    )
    # Minus infinity where it is masked, and what it is masked by is named like an axis of pairbench.
    add(
        definition(
            "masked",
            "import torch\ndef run(x):\n    return x.masked_fill(x < 0, -torch.inf)\n",
            axes={"workload": {"type": "var"}, "N": {"type": "const", "value": 24}},
            inputs={"x": spec("workload", "N")},
            outputs={"y": spec("workload", "N")},
        ),
        workload("77777777-aa", {"workload": 5}),
    )
    add(
        definition("constant", "import torch\ndef run(x):\n    return torch.ones_like(x)\n"),
        workload("88888888-aa", {"M": 4}),
    )
    save(root / "definitions" / "other" / "broken.json", '{"name": "broken",\n "axes": }')
    mine = root / "solutions" / "us"
    save(mine / "double" / "sum.json", solution("sum", "double", "def run(x, y):\n    y.copy_(x).add_(x)\n"))
    save(mine / "double" / "twice.json", solution("sum", "double", "def run(x, y):\n    y.copy_(x)\n"))
    save(mine / "constant.json", solution("sum", "constant", "def run(x, y):\n    y.fill_(1)\n"))
    two = [
        {
            "path": "main.py",
            "content": "from .inner import two\nimport helper\ndef run(x):\n    return x * two() * helper.ONE\n",
        },
        {"path": "inner.py", "content": "def two():\n    return 2\n"},
        {"path": "helper.py", "content": "ONE = 1\n"},
    ]
    save(mine / "double" / "two files.json", solution("two files", "double", "", into=False, sources=two))
    save(mine / "double" / "wrong.json", solution("wrong", "double", "def run(x, y):\n    y.copy_(x)\n"))
    save(mine / "double" / "ffi.json", solution("ffi", "double", "", language="cuda", entry_point="main.py::run"))
    save(mine / "double" / "java.json", solution("java", "double", "", language="java", entry_point="main.py::run"))
    gathered = "def run(x, rows, scale, factor, nothing, y, next):\n    y.copy_(x[rows.long()] * scale * factor)\n    next.copy_(rows + 1)\n"
    save(mine / "gather.json", solution("gathered", "gather", gathered))
    unmasked = "def run(x, y):\n    y.copy_(x.masked_fill(x < 0, -1e30))\n"
    save(mine / "masked.json", solution("unmasked", "masked", unmasked))
    masked = "import torch\ndef run(x):\n    return torch.where(x < 0, -torch.inf, x)\n"
    save(mine / "masked too.json", solution("masked", "masked", masked, into=False))
    return root
