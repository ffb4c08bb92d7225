"""The recipes for clusters start workers that pairbench knows how to start, alone on their nodes."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from pairbench.cli.app import app
from pairbench.integrations.recipes import recipe
from tests.integrations.ci_systems import content

WORKER = ["fleet", "worker", "tls://head:8786", "--certificates"]


def parsed(arguments: list[str]) -> dict[str, Any]:
    """Return how the command line takes the arguments of `pairbench fleet worker`; it fails on what it does not know."""
    group: Any = typer.main.get_command(app)
    return dict(group.commands["fleet"].commands["worker"].make_context("worker", arguments).params)


def test_slurm_starts_one_worker_a_node(tmp_path: Path) -> None:
    script = tmp_path / "workers.sbatch"
    script.write_text(recipe("slurm").text)
    checker = Path(sys.executable).parent / "shellcheck"
    subprocess.run([str(checker), str(script)], check=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "srun").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "bin" / "srun").chmod(0o755)
    variables = {
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "SLURM_SUBMIT_DIR": str(tmp_path),
    }
    unset = subprocess.run(["bash", str(script)], env=variables, capture_output=True, text=True, check=False)
    assert unset.returncode and "SCHEDULER" in unset.stderr
    variables["SCHEDULER"] = "tls://head:8786"
    done = subprocess.run(["bash", str(script)], env=variables, capture_output=True, text=True, check=True)
    _, command, *arguments = done.stdout.splitlines()
    assert command == f"{tmp_path}/pairbench-venv/bin/pairbench"
    assert arguments == [*WORKER, f"{tmp_path}/pairbench-certificates"]
    assert parsed(arguments[2:])["address"] == "tls://head:8786"
    options = dict(re.findall(r"^#SBATCH --([a-z-]+)=?(.*)$", recipe("slurm").text, re.MULTILINE))
    assert {"array", "exclusive", "signal", "time"} <= options.keys()
    assert options["nodes"] == options["ntasks"] == "1"


def test_kubernetes_starts_one_worker_a_node() -> None:
    job = content("kubernetes")
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    assert job["spec"]["parallelism"] == job["spec"]["completions"]
    pod = job["spec"]["template"]
    (rule,) = pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert rule["topologyKey"] == "kubernetes.io/hostname"
    assert rule["labelSelector"]["matchLabels"] == pod["metadata"]["labels"]
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["requests"] == container["resources"]["limits"]
    command, *arguments = container["command"]
    assert command == "pairbench"
    options = parsed(arguments[2:])
    assert arguments[:2] == WORKER[:2]
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert mounts[str(options["certificates"])] in {volume["name"] for volume in pod["spec"]["volumes"]}


@pytest.mark.parametrize("name", ["kubernetes", "slurm"])
def test_what_their_heads_say_is_there(name: str) -> None:
    group: Any = typer.main.get_command(app)
    told = re.findall(r"pairbench fleet (\w+)", recipe(name).text)
    assert set(told) <= group.commands["fleet"].commands.keys()
    assert {"certificates", "run"} <= set(told)
