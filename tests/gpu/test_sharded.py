"""The sharded decoder on two GPUs: right at the seams, timed, no process left behind, and a lost one is an error."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.commands import ROOT
from tests.gpu.commands import pairbench

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

SUITE = "suites/vae/sharded.py"

BEGIN = """
import json, os, signal, sys, threading, time
from pathlib import Path
import torch
from pairbench.execute.worker.calls import Make
from pairbench.suite.modules import load_module
vae_sharded = load_module(Path(sys.argv[1]))
vae_clip, vae_shard_team = vae_sharded.clip, vae_sharded.team
cuda = torch.device("cuda", 0)
torch.backends.cudnn.allow_tf32 = False  # as in a worker; the team takes over what it finds here

def inputs(latents, height, width, dtype, chunk=1, base=96):
    return vae_clip.inputs(Make(device=cuda, seed=0), latents, height, width, dtype, chunk, base=base)
"""


@pytest.fixture(autouse=True)
def _two_gpus() -> None:
    import torch

    if (found := torch.cuda.device_count()) < 2:
        pytest.skip(f"needs two GPUs; here are {found}")


def run(script: str, *, code: int = 0) -> tuple[Any, str]:
    """Return what a script prints last, as JSON, if it comes to that, and what it says on stderr."""
    command = [sys.executable, "-c", BEGIN + script, str(ROOT / SUITE)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout.splitlines()[-1]) if code == 0 else None, done.stderr


def test_every_case_verifies_and_every_impostor_is_rejected() -> None:
    tiers = ["--tier", "edge", "--tier", "smoke"]
    found = pairbench("verify", SUITE, "--device", "cuda:0", *tiers, "--impostors")
    sharded = [row for row in found["verifications"] if row["implementation"] == "sharded_2"]
    assert sharded and {row["status"] for row in sharded} == {"verified"}
    assert all("capture its own part" in row["uncapturable"] for row in sharded)
    assert found["impostors"] and all(row["rejected"] for row in found["impostors"])


def test_it_is_timed_with_its_launches_counted(tmp_path: Path) -> None:
    case = "vae_sharded[chunk=4,dtype=bfloat16,height=32,latents=5,width=32]"
    store = ("--store", str(tmp_path))
    found = pairbench("run", case, "--device", "cuda:0", "--rounds", "1", *store)
    rows = {row["implementation"]: row for row in found["records"]}
    row = rows["sharded_2"]
    assert row["status"] == "measured" and row["timer"] == "cuda_event" and row["call_p50_ns"] > 0
    assert row["launch_status"] == "exact", row["reason"]
    assert any("nccl" in kernel["name"].lower() for kernel in row["kernels"])
    assert not any("nccl" in kernel["name"].lower() for kernel in rows["one_copy"]["kernels"])


def test_no_other_gpu_has_a_higher_peak_than_the_first_and_both_have_a_lower_one_than_one_alone() -> None:
    (alone, first, others), _ = run("""
def peak(call):
    torch.cuda.synchronize(); torch.cuda.reset_peak_memory_stats(); before = torch.cuda.memory_allocated()
    call(); torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before

with torch.no_grad():
    given = inputs(5, 60, 104, "bfloat16", chunk=4)
    prepared = vae_sharded.prepare_two(given["weights"])
    vae_sharded.in_two(**given, **prepared)
    team = vae_shard_team.team_of(2, cuda)
    team.peaks()
    first = peak(lambda: vae_sharded.in_two(**given, **prepared))
    others = [above for _, above in team.peaks()]
    alone = peak(lambda: vae_sharded.one_copy(**given))
print(json.dumps([alone, first, others]))
""")
    assert max(others) <= first * 1.02 < alone, (alone, first, others)


def test_a_process_that_is_lost_in_the_middle_of_a_call_ends_the_worker_soon_and_says_so() -> None:
    began = time.monotonic()
    _, said = run(
        """
given = inputs(21, 60, 104, "bfloat16")
prepared = vae_sharded.prepare_two(given["weights"])
vae_sharded.in_two(**given, **prepared)
torch.cuda.synchronize()
team = vae_shard_team.team_of(2, cuda)
threading.Timer(0.3, lambda: os.kill(team.processes[0].pid, signal.SIGKILL)).start()
for _ in range(20):
    vae_sharded.in_two(**given, **prepared)
torch.cuda.synchronize()
print("null")
""",
        code=1,
    )
    assert "process 1 of 2 ended with status -9" in said
    assert time.monotonic() - began < 180


def test_a_process_that_is_lost_between_calls_is_an_error_of_the_next() -> None:
    (said, off), _ = run("""
given = inputs(2, 8, 12, "float32", base=8)
prepared = vae_sharded.prepare_two(given["weights"])
vae_sharded.in_two(**given, **prepared)
torch.cuda.synchronize()
team = vae_shard_team.team_of(2, cuda)
os.kill(team.processes[0].pid, signal.SIGKILL)
time.sleep(2)
said = team.broken
again = vae_sharded.in_two(**given, **prepared)
print(json.dumps([said, float((again - vae_sharded.one_device(**given)).abs().max())]))
""")
    assert "process 1 of 2 ended with status -9" in said
    assert off < 1e-3


def test_no_process_is_left_on_a_gpu() -> None:
    script = (
        BEGIN
        + """
prepared = vae_sharded.prepare_two(inputs(1, 4, 6, "float32", base=8)["weights"])
print(json.dumps([process.pid for process in vae_shard_team.team_of(2, cuda).processes]), flush=True)
time.sleep(600)
"""
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(ROOT / SUITE)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        (other,) = json.loads(process.stdout.readline())
        assert Path(f"/proc/{other}").exists()
        process.kill()
    until = time.monotonic() + 20
    while Path(f"/proc/{other}").exists() and time.monotonic() < until:
        time.sleep(0.1)
    state = Path(f"/proc/{other}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"
