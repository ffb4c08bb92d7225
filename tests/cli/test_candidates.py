"""Twenty-three candidates for five problems, whose answers are known: each gets its own, whatever the others beside it do."""

import json
from pathlib import Path

import pytest

from pairbench.execute.isolation import can_be_kept_from
from tests.cli.conftest import Pairbench, records_of, settle
from tests.cli.test_problems import CANDIDATE, PROBLEM, write
from tests.commands import call

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

GELU = "0.5 * x * (1 + torch.tanh(0.8 * x))"
KEPT = f"self.seen[key] = self.seen[key] if key in self.seen else {GELU}"
CROSS_ENTROPY = "return nn.functional.cross_entropy(scores, target)"
THREAD = "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
# What a problem and its candidates have in common, and what the problem has for itself.
PROBLEMS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "1_Gelu": ({}, {"body": f"return {GELU}", "inputs": "[torch.randn(128, 256)]"}),
    "2_Softmax": (
        {},
        {"body": "e = torch.exp(x); return e / e.sum(1, keepdim=True)", "inputs": "[torch.randn(128, 256)]"},
    ),
    "3_Linear": (
        {"init": ", width", "made": "self.inner = nn.Linear(40, width)"},
        {"body": "return torch.relu(self.inner(x)) + 1", "arguments": "[8]"},
    ),
    "4_Loss": (
        {"takes": "scores, target"},
        {"body": CROSS_ENTROPY, "inputs": "[torch.randn(ROWS, 40), torch.randint(0, 40, (ROWS,))]"},
    ),
    "5_Conv": (
        {"init": ", channels", "made": "self.conv = nn.Conv2d(3, channels, 3, bias=False)"},
        {"body": "return self.conv(x)", "arguments": "[8]", "inputs": "[torch.randn(2, 3, 12, 12)]"},
    ),
}
DIFFERS = "differs from the baseline's"
# Body, status, a part of the reason, and what the constructor makes where it is something else.
ANSWERS: dict[str, list[tuple[str, ...]]] = {
    "1_Gelu": [
        (f"return {GELU}", "measured", ""),
        (f"return [{GELU} for _ in range(3)][-1]", "measured", ""),
        ("return nn.functional.gelu(x)", "mismatched", DIFFERS),
        (f"return x.copy_({GELU})", "mismatched", "changes its input 'args[0]'"),
        (
            f"key = x.data_ptr(), x._version; {KEPT}; return self.seen[key]",
            "failed or mismatched",
            "",
            "self.seen = {}",
        ),
    ],
    "2_Softmax": [
        ("return x.softmax(1)", "measured", ""),
        ("y = x.softmax(1); y[3, 5] += 1e-3; return y", "mismatched", "in 1 of 32768 elements"),
        ("return torch.zeros_like(x)", "mismatched", "in 32768 of 32768 elements"),
        ("return x.half().softmax(1).float()", "mismatched", DIFFERS),
        ("return torch.empty_like(x)", "mismatched", "output"),
    ],
    "3_Linear": [
        ("return (x @ self.inner.weight.t() + self.inner.bias).clamp(min=0) + 1", "measured", ""),
        (
            "return torch.relu(x @ self.w) + 1",
            "mismatched",
            DIFFERS,
            "self.w = nn.Parameter(torch.randn(40, width) / 6)",
        ),
        (f"{THREAD}; return torch.relu(self.inner(x)) + 1", "failed", "leaves a thread running"),
        ("torch.set_num_threads(3); return torch.relu(self.inner(x)) + 1", "failed", "changes global flags"),
    ],
    "4_Loss": [
        ("return -scores.log_softmax(1).gather(1, target[:, None]).mean()", "measured", ""),
        ("return torch.logsumexp(scores, 1).mean()", "mismatched", "in 1 of 1 elements"),
        ("raise ValueError('no kernel')", "failed", "line 11: ValueError: no kernel"),
        (CROSS_ENTROPY, "failed", "replaces torch.relu", "torch.relu = torch.sigmoid"),
    ],
    "5_Conv": [
        ("return (self.conv.weight.flatten(1) @ nn.functional.unfold(x, 3)).view(len(x), -1, 10, 10)", "measured", ""),
        ("return self.conv(x).double()", "mismatched", "float64"),
        ("return self.conv(x).transpose(2, 3)", "mismatched", DIFFERS),
        ("return self.conv(x)[:, :, :9]", "mismatched", "shape"),
        ("import os; os._exit(3)", "failed", "ended its process with exit status 3"),
    ],
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_each_candidate_gets_its_answer(name: str, tmp_path: Path, pairbench: Pairbench) -> None:
    common, own = PROBLEMS[name]
    problem = write(tmp_path / "level1" / f"{name}.py", PROBLEM, common | own)
    for place, (body, _, _, *made) in enumerate(ANSWERS[name]):
        values = {**common, "body": body, **({"made": made[0]} if made else {})}
        write(tmp_path / "mine" / f"level_1_problem_{name[0]}_sample_{place}_kernel.py", CANDIDATE, values)
    options = ("--against", "mine", "-i", "sample_*", "--device", "cpu", "--rounds", "1", "--format", "json")
    rows = {row["implementation"]: row for row in records_of(pairbench("run", str(problem), *options))}
    assert rows["baseline"]["status"] == "measured", rows["baseline"]["reason"]
    for place, (_, status, words, *_) in enumerate(ANSWERS[name]):
        row = rows[f"sample_{place}"]
        assert row["status"] in status and words in (row["reason"] or ""), (place, row["status"], row["reason"])


@pytest.fixture
def isolates() -> None:
    if len(can_be_kept_from()) < 2:
        pytest.skip("this kernel cannot keep a process from both")


@pytest.mark.usefixtures("isolates")
def test_one_candidate_gets_one_answer(tmp_path: Path, pairbench: Pairbench) -> None:
    common, own = PROBLEMS["3_Linear"]
    problem = write(tmp_path / "3_Linear.py", PROBLEM, common | own)
    wrong = write(tmp_path / "wrong.py", CANDIDATE, {"init": ", width", "body": "return x[:, :8]"})
    options = ("--isolated", "--rounds", "1", "--device", "cpu", "--format", "json")
    done = pairbench("judge", str(problem), str(wrong), *options)
    document = json.loads(done.stdout)
    assert (done.returncode, document["verdict"], document["candidate"]) == (1, "wrong", "wrong"), done.stderr
    assert document["kept_from"] == ["network", "files"]
    (case,) = document["cases"]
    assert case["code"] == "mismatched" and "the worst, at [" in case["reason"]
    assert case["best"] in ("baseline", "compiled")


REACHES = "import socket; socket.create_connection(('127.0.0.1', 9), timeout=5)"
IN_ISOLATION = [
    ("import tempfile; tempfile.TemporaryFile().close()", "measured", ""),
    (REACHES, "failed", "Network is unreachable"),
    ("open(__file__, 'a').close()", "failed", "Permission denied"),
]


@pytest.mark.usefixtures("isolates")
def test_candidates_in_isolation_reach_nothing_and_write_to_their_own_folder_alone(tmp_path: Path) -> None:
    """By the setting, which `judge --isolated` sets: `judge` compiles the baseline as well, which takes long."""
    environment = settle(tmp_path, isolated=True)
    problem = write(tmp_path / "level1" / "2_Softmax.py", PROBLEM, PROBLEMS["2_Softmax"][1])
    for place, (does, *_) in enumerate(IN_ISOLATION):
        name = f"level_1_problem_2_sample_{place}_kernel.py"
        write(tmp_path / "mine" / name, CANDIDATE, {"body": f"{does}; return x.softmax(1)"})
    options = ("--against", "mine", "-i", "sample_*", "--device", "cpu", "--rounds", "1", "--format", "json")
    rows = {
        row["implementation"]: row for row in records_of(call(tmp_path, environment, "run", str(problem), *options))
    }
    for place, (_, status, words) in enumerate(IN_ISOLATION):
        row = rows[f"sample_{place}"]
        assert row["status"] == status and words in (row["reason"] or ""), row["reason"]
