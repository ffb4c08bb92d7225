"""A decoder spread over processes of a CPU: the same pixels at every seam, and no process that outlives its team.

Each test has a process of its own, as a worker is one: torch.distributed is there once in a process.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.execute.made import gone

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow

BEGIN = """
import json, os, signal, sys, time
from pathlib import Path
import torch
from pairbench.execute.worker.calls import Make
from pairbench.suite.modules import load_module
names = ("vae_clip", "vae_shard_forms", "vae_shard_team", "sharded")
vae_clip, vae_shard_forms, vae_shard_team, vae_sharded = (load_module(Path(sys.argv[1], f"{name}.py")) for name in names)
torch.set_num_threads(1)

def inputs(latents=2, height=4, width=6, chunk=1, seed=0, **more):
    make = Make(device=torch.device("cpu"), seed=seed)
    return vae_clip.inputs(make, latents, height, width, "float64", chunk, base=8, **more)

def off(function, prepare, given):
    want = vae_sharded.one_device(**given)
    return float((function(**given, **prepare(given["weights"])) - want).abs().max())
"""

TWO = "vae_sharded.in_two, vae_sharded.prepare_two"
THREE = "vae_sharded.in_three, vae_sharded.prepare_three"


def start(script: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BEGIN + script, str(ROOT / "suites" / "vae")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def run(script: str) -> Any:
    """Return what a script prints last, as JSON."""
    done = start(script)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_seams_cannot_be_seen_and_the_longer_side_is_cut_of_which_the_first_get_what_is_left() -> None:
    errors, cuts = run(f"""
cases = [inputs(), inputs(width=7), inputs(height=5, width=4, chunk=-1), inputs(width=3, height=2), inputs(latents=1),
         inputs(batch=2, latents=3, chunk=2), inputs(latents=4, chunk=2, split=3)]
cuts = [vae_shard_forms.cut(90, 160, 4), vae_shard_forms.cut(5, 4, 2), vae_shard_forms.cut(4, 11, 3)]
print(json.dumps([[[off({TWO}, given), off({THREE}, given)] for given in cases], cuts]))
""")
    # A network in float64 that sums in another order; a pixel that saw no neighbour is off by 1e-2 and more.
    assert max(error for pair in errors for error in pair) < 1e-12, errors
    assert cuts == [[-1, [40, 40, 40, 40]], [-2, [3, 2]], [-1, [4, 4, 3]]]


def test_a_call_has_the_weights_that_it_was_prepared_with() -> None:
    found = run("""
one, other = inputs(seed=1), inputs(seed=2)
first, second = (vae_sharded.prepare_two(given["weights"]) for given in (one, other))
team = vae_shard_team.team_of(2, torch.device("cpu"))
processes = [process.pid for process in team.processes]
errors = [float((vae_sharded.in_two(**given, **prepared) - vae_sharded.one_device(**given)).abs().max())
          for given, prepared in ((one, first), (other, second), (one, first))]
same = vae_sharded.prepare_two(one["weights"])["version"] == first["version"]
print(json.dumps([errors, bool(same), first["version"] == second["version"],
                  processes == [process.pid for process in team.processes]], default=bool))
""")
    errors, same, equal, stayed = found
    assert max(errors) < 1e-12 and same and not equal and stayed


def test_a_process_that_fails_is_an_error_of_the_call_and_of_that_alone() -> None:
    found = run(f"""
given, found = inputs(), []

def kills():
    os.kill(team.processes[1].pid, signal.SIGKILL)

def loads_what_is_wrong():
    team.load({{**given["weights"], "mid": [{{}}]}}, int(prepared["version"]) + 1, 3)
    prepared["version"] += 1

for breaks in (kills, loads_what_is_wrong):
    prepared = vae_sharded.prepare_three(given["weights"])
    vae_sharded.in_three(**given, **prepared)
    team = vae_shard_team.team_of(3, torch.device("cpu"))
    breaks()
    began = time.monotonic()
    try:
        vae_sharded.in_three(**given, **prepared)
    except RuntimeError as error:
        said = str(error)
    found.append([said, time.monotonic() - began, off({THREE}, given)])
print(json.dumps(found))
""")
    words = ("process 2 of 3 ended with status -9", "failed: KeyError: 'norm1'")
    for word, (said, seconds, after) in zip(words, found, strict=True):
        assert word in said and after < 1e-12 and seconds < 60


def test_a_device_that_waits_for_a_process_that_is_gone_ends_the_worker_and_no_other_does() -> None:
    """What watches the others of a GPU's team, with a device that is a stand-in."""
    done = start("""
vae_shard_team.GRACE_S = 0.5
team = vae_shard_team.team_of(2, torch.device("cpu"))
os.kill(team.processes[0].pid, signal.SIGKILL)
for through in (True, False):
    team._done = type("Event", (), {"query": lambda self: through})()
    team._watch(team.processes[0])
    print("goes on", flush=True)
""")
    assert (done.returncode, done.stdout) == (1, "goes on\n"), done.stderr
    assert "fatal: process 1 of 2 ended with status -9\n" in done.stderr


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_no_process_outlives_the_one_that_is_called(how: signal.Signals) -> None:
    script = (
        BEGIN
        + """
prepared = vae_sharded.prepare_three(inputs()["weights"])
team = vae_shard_team.team_of(3, torch.device("cpu"))
print(json.dumps([process.pid for process in team.processes]), flush=True)
time.sleep(600)
"""
    )
    command = [sys.executable, "-c", script, str(ROOT / "suites" / "vae")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        others = json.loads(process.stdout.readline())
        assert len(others) == 2 and not any(Path(f"/proc/{pid}").exists() is False for pid in others)
        os.kill(process.pid, how)
    assert all(gone(pid) for pid in others)
