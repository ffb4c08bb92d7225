"""Outputs on a GPU as another process reads them: as they are, without a copy on the host, and no more than there is."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest
import torch

from pairbench.execute.worker.judge import plain

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

READ = """
import os, sys, torch
from pairbench.errors import DeclarationError
from pairbench.execute.worker.judge.plain import read
try:
    found = read(sys.stdin.read(), int(sys.argv[1]))
except DeclarationError as error:
    sys.exit(str(error))
torch.save({path: value.cpu() for path, value in found.items()}, sys.argv[2])
print({path: str(value.device) for path, value in found.items()})
"""


def read_elsewhere(described: str, file: int, folder: Any) -> tuple[dict[str, torch.Tensor], str]:
    """Return outputs as a process of its own reads them, and what it prints."""
    to = folder / "read.pt"
    command = [sys.executable, "-c", READ, str(file), str(to)]
    done = subprocess.run(command, input=described, capture_output=True, text=True, pass_fds=(file,), check=False)
    return (torch.load(to), done.stdout) if to.exists() else ({}, done.stderr)


@pytest.fixture
def file() -> Any:
    made = os.memfd_create("outputs")
    yield made
    os.close(made)


def outputs() -> dict[str, torch.Tensor]:
    x = torch.arange(24.0, device="cuda").reshape(2, 3, 4)
    captured, graph = torch.empty(0), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = x * 3
    graph.replay()
    return {
        "dense": x,
        "turned": x.transpose(0, 2),
        "part": x[:, 1:, ::2],
        "number": x[1, 2, 3],
        "spread": torch.ones(3, 1, device="cuda").expand(3, 5),
        "empty": torch.empty(0, 3, device="cuda"),
        "half": x.to(torch.bfloat16),
        "truths": x > 7,
        "complex": torch.conj(torch.complex(x, -x)),
        "captured": captured,
        "large": torch.randn(1 << 24, device="cuda"),
        "host": torch.arange(3),
    }


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("handles", [True, False])
def test_outputs_arrive_as_they_are(
    copy: bool, handles: bool, file: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not handles:  # as for memory of `expandable_segments`
        monkeypatch.setattr(type(plain._driver()), "handle", lambda *_: None)
    given = outputs()
    described = plain.write(plain.export(given, copy=copy), file)
    shared = [path for path, (kind, *_) in json.loads(described) if kind == "shared"]
    assert len(shared) == (len(given) - 2 if handles else 0)  # all but the one on the host and the one without elements
    found, printed = read_elsewhere(described, file, tmp_path)
    assert found.keys() == given.keys(), printed
    for path, value in found.items():
        assert torch.equal(value, given[path].cpu().resolve_conj()), path
        assert f"'{path}': '{given[path].device}'" in printed


def test_a_copy_stays_as_it_was(file: int, tmp_path: Any) -> None:
    given = torch.ones(1 << 20, device="cuda")
    exported = plain.export(given)
    given.zero_()
    found, printed = read_elsewhere(plain.write(exported, file), file, tmp_path)
    assert bool((found[""] == 1).all()), printed


@pytest.mark.parametrize(
    ("at", "value"),
    [(2, [1 << 40]), (3, [1 << 20]), (4, "00" * 64), (5, 1 << 40), (6, 4 << 30), (7, "cuda:99")],
    ids=["shape", "strides", "handle", "offset", "size", "device"],
)
def test_a_description_reads_no_more_than_there_is(at: int, value: Any, file: int, tmp_path: Any) -> None:
    exported = plain.export(torch.ones(4, device="cuda"), copy=False)
    (_, described), *_ = exported.leaves
    described[at] = value
    found, printed = read_elsewhere(plain.write(exported, file), file, tmp_path)
    assert not found
    assert "its worker sent outputs that cannot be read" in printed
