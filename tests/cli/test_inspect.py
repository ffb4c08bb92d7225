"""`pairbench breakdown` and `pairbench diverge`: real processes, and what they say to wrong arguments."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import SUITES, Cli, Pairbench

NETWORK = f"{SUITES}/modules.py::network"


def test_a_breakdown_with_its_trace_is_kept_and_on_the_site(pairbench: Pairbench, cli: Cli, tmp_path: Path) -> None:
    options = ("--trace", "out.json", "--keep", "--store", "here", "--format", "json")
    done = pairbench("breakdown", NETWORK, "-i", "casts", "-d", "cpu", *options)
    assert done.returncode == 0 and "pairbench: kept as " in done.stderr, done.stderr
    (found,) = json.loads(done.stdout)["breakdown"]["implementations"]
    assert {line["spot"]["what"] for line in found["lines"]} == {"cast", "cache"}
    assert found["parts_ns"] > 0 and found["modules"]["children"][0]["label"] == "net"
    assert json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    assert list((tmp_path / "here" / "breakdowns").glob("device=*/*.json"))
    assert cli("dashboard", "--store", "here", "--output", "site").code == 0
    assert "network[dtype=float32" in (tmp_path / "site" / "breakdowns.html").read_text()
    (page,) = (tmp_path / "site" / "breakdowns").glob("*.html")
    assert "blocks.0-3" in page.read_text() and "modules.py:29" in page.read_text()


def test_what_fails_is_told_and_the_others_are_shown(pairbench: Pairbench) -> None:
    done = pairbench("breakdown", NETWORK, "-i", "raises", "-i", "baseline", "--device", "cpu")
    assert done.returncode == 1
    assert "ArithmeticError: no such block" in done.stdout and "blocks.0-3" in done.stdout
    assert "none of them is a latency" in done.stdout


def test_a_divergence(pairbench: Pairbench) -> None:
    done = pairbench("diverge", NETWORK, "-v", "wrong_ffn", "--case", "dtype=bfloat16", "--device", "cpu")
    assert done.returncode == 1, done.stderr
    assert "net.blocks.2.ffn.2 (ShiftedLinear) is the first whose output leaves the tolerance" in done.stdout
    assert "the error is made in it" in done.stdout


def test_no_divergence(pairbench: Pairbench) -> None:
    done = pairbench("diverge", NETWORK, "-v", "same", "--device", "cpu", "--format", "json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)["divergence"]
    assert document["first"] is None and not document["bad"] and len(document["layers"]) == 37


def test_what_does_not_go_here_is_said(pairbench: Pairbench) -> None:
    done = pairbench("breakdown", f"{SUITES}/interpreted.py::interpreted", "-i", "kernel", "--device", "cpu")
    assert done.returncode == 2
    assert "Triton's interpreter verified it; its times would mean nothing" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["breakdown", f"{SUITES}/modules.py"], "expected one operator, the selection takes 2"),
        (["breakdown", NETWORK, "-i", "no"], "has no implementation 'no', expected one of baseline"),
        (["breakdown", NETWORK, "--mode", "compile"], "--mode 'compile' cannot be broken down"),
        (["breakdown", NETWORK, "--case", "rows=9"], "fits no case; expected one of network["),
        (["breakdown", NETWORK, "--case", "layers=4"], "fits several cases; expected one of"),
        (["breakdown", NETWORK, "-i", "all", "--trace", "t.json"], "takes one implementation"),
        (["breakdown", NETWORK, "--trace", "no/t.json"], "its folder does not exist"),
        (["diverge", NETWORK], "--variant"),
        (["diverge", NETWORK, "-v", "baseline"], "has no variant 'baseline', expected one of same"),
    ],
    ids=lambda value: " ".join(value).replace(f"{SUITES}/", "") if isinstance(value, list) else "",
)
def test_wrong_arguments(surveyed: Cli, arguments: list[str], words: str) -> None:
    said = surveyed(*arguments, "--device", "cpu")
    assert said.code == 2 and words in said.err, said.out + said.err
