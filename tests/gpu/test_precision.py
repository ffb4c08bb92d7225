"""TF32 on a real GPU: products and convolutions are right with and without it, faster with it, and the record says which."""

from pathlib import Path
from typing import Any

import pytest

from tests.gpu.commands import pairbench

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]

_SUITE = """
import torch
from pairbench import REASSOCIATED, Operator, Variant, grid


def inputs(make, channels):
    return {"x": make.normal(8, channels, 32, 32), "weight": make.normal(channels, channels, 4, 4, scale=0.01)}


def transposed(x, weight):
    return torch.nn.functional.conv_transpose2d(x, weight, stride=2)


def channels_last(x, weight):
    return transposed(x.contiguous(memory_format=torch.channels_last), weight).contiguous()


def product(x, weight):
    return x.flatten(1) @ x.flatten(1).t()


def declare(name, baseline, variant, **more):
    variants = {"v": variant, "compiled": torch.compile(baseline, dynamic=False)}
    return Operator(name, baseline=baseline, variants=variants, inputs=inputs, tolerance=REASSOCIATED, **more)


axis = declare("axis", transposed, channels_last, cases=grid(channels=[256], tf32=[True, False]))
setting = declare("setting", transposed, channels_last, cases=grid(channels=[256]))
gram = declare("gram", product, lambda x, weight: torch.einsum("bi,ci->bc", x.flatten(1), x.flatten(1)), cases=grid(channels=[256]))
plain = declare("plain", lambda x, weight: x + x, lambda x, weight: x * 2, cases=grid(channels=[256]))
"""


def _run(folder: Path, option: str) -> tuple[dict[str, dict[str, Any]], list[str]]:
    document = pairbench("run", "precise.py", "--rounds", "1", option, folder=folder)
    return {f"{row['case']} {row['implementation']}": row for row in document["records"]}, document["notes"]


def test_tf32_is_right_faster_and_said(tmp_path: Path) -> None:
    (tmp_path / "precise.py").write_text(_SUITE)
    (tmp_path / "pyproject.toml").write_text("[tool.pairbench]\n")
    off, said_off = _run(tmp_path, "--no-tf32")
    on, said_on = _run(tmp_path, "--tf32")
    for rows, setting in ((off, "ieee"), (on, "tf32")):
        assert {row["status"] for row in rows.values()} == {"measured"}
        for name, row in rows.items():
            wanted = {"axis[channels=256,tf32=True]": "tf32", "axis[channels=256,tf32=False]": "ieee"}
            plain = None if name.startswith("plain") else setting
            assert row["float32_precision"] == wanted.get(row["case"], plain), name
    assert (
        off["setting[channels=256] baseline"]["device_p50_ns"] > on["setting[channels=256] baseline"]["device_p50_ns"]
    )
    for rows in (off, on):
        ieee, tf32 = (rows[f"axis[channels=256,tf32={tf32}] baseline"] for tf32 in (False, True))
        assert ieee["device_p50_ns"] > tf32["device_p50_ns"] and ieee["rel_l2_error"] < 1e-5 < tf32["rel_l2_error"]
        assert ieee["environment_hash"] == tf32["environment_hash"]
    assert all(len(said) == 1 and "by the axis tf32" in said[0] for said in (said_off, said_on))
