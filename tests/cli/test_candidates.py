"""Twenty-three candidates for five problems, whose answers are known: each gets its own, whatever the others beside it do."""

import json
from pathlib import Path

import pytest

from pairbench.execute.isolation import can_be_kept_from
from tests.cli.conftest import Pairbench
from tests.cli.test_problems import CANDIDATE, PROBLEM, write

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

GELU = "0.5 * x * (1 + torch.tanh(0.8 * x))"
KEPT = f"self.seen[key] = self.seen[key] if key in self.seen else {GELU}"
LINEAR = {"init": ", width", "made": "self.inner = nn.Linear(40, width)"}
CONVOLUTION = {"init": ", channels", "made": "self.conv = nn.Conv2d(3, channels, 3, bias=False)"}
SCORES = {"takes": "scores, target"}
PROBLEMS: dict[str, dict[str, str]] = {
    "1_Gelu": {"body": f"return {GELU}", "inputs": "[torch.randn(128, 256)]"},
    "2_Softmax": {"body": "e = torch.exp(x); return e / e.sum(1, keepdim=True)", "inputs": "[torch.randn(128, 256)]"},
    "3_Linear": {**LINEAR, "body": "return torch.relu(self.inner(x)) + 1", "arguments": "[8]"},
    "4_Loss": {
        **SCORES,
        "body": "return nn.functional.cross_entropy(scores, target)",
        "inputs": "[torch.randn(ROWS, 40), torch.randint(0, 40, (ROWS,))]",
    },
    "5_Conv": {
        **CONVOLUTION,
        "body": "return self.conv(x)",
        "arguments": "[8]",
        "inputs": "[torch.randn(2, 3, 12, 12)]",
    },
}
THREAD = "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
ANSWERS: dict[str, list[tuple[dict[str, str], str, str]]] = {
    "1_Gelu": [
        ({"body": f"return {GELU}"}, "measured", ""),
        ({"body": f"return [{GELU} for _ in range(3)][-1]"}, "measured", ""),
        ({"body": "return nn.functional.gelu(x)"}, "mismatched", "differs from the baseline's"),
        ({"body": f"return x.copy_({GELU})"}, "mismatched", "changes its input 'args[0]'"),
        (
            {"made": "self.seen = {}", "body": f"key = x.data_ptr(), x._version; {KEPT}; return self.seen[key]"},
            "failed or mismatched",
            "",
        ),
    ],
    "2_Softmax": [
        ({"body": "return x.softmax(1)"}, "measured", ""),
        ({"body": "y = x.softmax(1); y[3, 5] += 1e-3; return y"}, "mismatched", "in 1 of 32768 elements"),
        ({"body": "return torch.zeros_like(x)"}, "mismatched", "in 32768 of 32768 elements"),
        ({"body": "return x.half().softmax(1).float()"}, "mismatched", "differs from the baseline's"),
        ({"body": "return torch.empty_like(x)"}, "mismatched", "output"),
    ],
    "3_Linear": [
        ({**LINEAR, "body": "return (x @ self.inner.weight.t() + self.inner.bias).clamp(min=0) + 1"}, "measured", ""),
        (
            {
                "init": ", width",
                "made": "self.w = nn.Parameter(torch.randn(40, width) / 6)",
                "body": "return torch.relu(x @ self.w) + 1",
            },
            "mismatched",
            "differs from the baseline's",
        ),
        ({**LINEAR, "body": f"{THREAD}; return torch.relu(self.inner(x)) + 1"}, "failed", "leaves a thread running"),
        (
            {**LINEAR, "body": "torch.set_num_threads(3); return torch.relu(self.inner(x)) + 1"},
            "failed",
            "changes global flags",
        ),
    ],
    "4_Loss": [
        (
            {**SCORES, "body": "return -scores.log_softmax(1).gather(1, target[:, None]).mean()"},
            "measured",
            "",
        ),
        ({**SCORES, "body": "return torch.logsumexp(scores, 1).mean()"}, "mismatched", "in 1 of 1 elements"),
        ({**SCORES, "body": "raise ValueError('no kernel')"}, "failed", "line 11: ValueError: no kernel"),
        (
            {
                **SCORES,
                "made": "torch.relu = torch.sigmoid",
                "body": "return nn.functional.cross_entropy(scores, target)",
            },
            "failed",
            "replaces torch.relu",
        ),
    ],
    "5_Conv": [
        (
            {
                **CONVOLUTION,
                "body": "return (self.conv.weight.flatten(1) @ nn.functional.unfold(x, 3)).view(len(x), -1, 10, 10)",
            },
            "measured",
            "",
        ),
        ({**CONVOLUTION, "body": "return self.conv(x).double()"}, "mismatched", "float64"),
        ({**CONVOLUTION, "body": "return self.conv(x).transpose(2, 3)"}, "mismatched", "differs from the baseline's"),
        ({**CONVOLUTION, "body": "return self.conv(x)[:, :, :9]"}, "mismatched", "shape"),
        ({**CONVOLUTION, "body": "import os; os._exit(3)"}, "failed", "ended its process with exit status 3"),
    ],
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_each_candidate_gets_its_answer(name: str, tmp_path: Path, pairbench: Pairbench) -> None:
    problem = write(tmp_path / "level1" / f"{name}.py", PROBLEM, PROBLEMS[name])
    for place, (values, _, _) in enumerate(ANSWERS[name]):
        write(tmp_path / "mine" / f"level_1_problem_{name[0]}_sample_{place}_kernel.py", CANDIDATE, values)
    names = [f"sample_{place}" for place in range(len(ANSWERS[name]))]
    chosen = [argument for one in names for argument in ("-i", one)]
    options = ("--against", "mine", *chosen, "--device", "cpu", "--rounds", "1", "--format", "json")
    done = pairbench("run", str(problem), *options)
    rows = {row["implementation"]: row for row in json.loads(done.stdout)["records"]}
    assert rows["baseline"]["status"] == "measured", rows["baseline"]["reason"]
    for one, (_, status, words) in zip(names, ANSWERS[name], strict=True):
        found, reason = rows[one]["status"], rows[one]["reason"] or ""
        assert found in status and words in reason, (one, found, reason)


REACHES = "import socket; socket.create_connection(('127.0.0.1', 9), timeout=5)"


@pytest.mark.parametrize(
    ("does", "code", "words"),
    [
        ("import tempfile; tempfile.TemporaryFile().close()", "right", ""),
        (REACHES, "failed", "Network is unreachable"),
        ("open(__file__, 'a').close()", "failed", "Permission denied"),
    ],
)
def test_a_candidate_in_isolation_reaches_nothing_and_writes_to_its_own_folder_alone(
    does: str, code: str, words: str, tmp_path: Path, pairbench: Pairbench
) -> None:
    if len(can_be_kept_from()) < 2:
        pytest.skip("this kernel cannot keep a process from both")
    problem = write(tmp_path / "2_Softmax.py", PROBLEM, PROBLEMS["2_Softmax"])
    candidate = write(tmp_path / "mine.py", CANDIDATE, {"body": f"{does}; return x.softmax(1)"})
    options = ("--isolated", "--rounds", "1", "--device", "cpu", "--format", "json")
    found = json.loads(pairbench("judge", str(problem), str(candidate), *options).stdout)
    assert found["kept_from"] == ["network", "files"]
    (case,) = found["cases"]
    assert case["code"] == code and words in (case["reason"] or "")
