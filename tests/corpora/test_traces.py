"""Problems of FlashInfer-Trace's form, our own ones: what is taken, what is left out and why, and how it is judged."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from pairbench.errors import DeclarationError, SuiteError
from pairbench.execute.worker.calls import build_inputs
from pairbench.execute.worker.describe.operators import hashes_of
from pairbench.model.operator import Operator
from pairbench.suite.modules import find_suites
from tests.commands import Done, call, environment_of
from tests.corpora.conftest import definition, only, safetensors, save, solution, spec, workload
from tests.in_process import call_main

CPU = torch.device("cpu")


def of(root: Path, name: str) -> Path:
    return root / "definitions" / "other" / f"{name}.json"


def pairbench(root: Path, *arguments: str) -> Done:
    folder = root.parent
    (folder / "tmp").mkdir(exist_ok=True)
    (folder / "pyproject.toml").write_text("[tool.pairbench]\ncase_seconds = 0.02\nmin_samples = 20\nrounds = 1\n")
    return call(folder, environment_of(folder / "tmp", PAIRBENCH_WORKERS="fork"), *arguments, "--device", "cpu")


def inputs_of(operator: Operator, place: int = 0) -> dict[str, Any]:
    return build_inputs(operator, operator.cases[place], CPU, 0)


def left_out(operator: Operator) -> str:
    return "\n".join(operator.left_out)


def test_a_data_set_is_judged_as_it_lies_there(trace_set: Path) -> None:
    chosen = [word for name in ("sum", "two_files", "wrong", "gathered", "masked", "unmasked") for word in ("-i", name)]
    done = pairbench(trace_set, "verify", "set", *chosen, "--format", "json")
    assert "Traceback" not in done.stderr, done.stderr
    rows = json.loads(done.stdout)["verifications"]
    found = {
        (row["case"].partition("[")[0], row["implementation"]): (row["status"], row["reason"] or "") for row in rows
    }
    right = {pair for pair, (status, _) in found.items() if status == "verified" and pair[1] != "baseline"}
    assert right == {("double", "sum"), ("double", "two_files"), ("gather", "gathered"), ("masked", "masked")}
    assert found["double", "wrong"][0] == "mismatched"
    status, reason = found["masked", "unmasked"]
    assert status == "mismatched" and "is -1e+30 instead of -inf" in reason
    assert "the output is the same for all inputs" in found["constant", "baseline"][1]
    assert done.returncode == 2, "a definition is no JSON"
    assert "broken.json: no JSON: Expecting value: line 2 column 10" in done.stderr
    assert "ffi.json: its binding is 'tvm-ffi', expected 'torch'" in done.stderr
    assert "java.json: its language is 'java', expected one of python" in done.stderr
    assert "taken: 4 of 5 problems, 6 of 9 workloads, 7 of 10 solutions" in done.stderr


NATIVE = """
#include <torch/extension.h>
#include "own.h"
void run(torch::Tensor x, torch::Tensor y) { y.copy_(x).add_(x); TWICE }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_solutions_in_cpp_are_compiled_and_their_faults_are_their_own(trace_set: Path) -> None:
    folder = trace_set / "solutions" / "us" / "double"
    header = {"path": "own.h", "content": "#define TWICE\n"}
    for name, text in {"native": NATIVE, "broken": NATIVE.replace("TWICE", "z"), "small": "int run;"}.items():
        sources = [{"path": "main.cpp", "content": text}, header]
        made = solution(
            name, "double", "", language="cpp", binding="torch", entry_point="main.cpp::run", sources=sources
        )
        save(folder / f"{name}.json", made)
    chosen = [word for name in ("native", "broken", "small") for word in ("-i", name)]
    done = pairbench(trace_set, "verify", str(of(trace_set, "double")), *chosen, "--format", "json")
    assert "Traceback" not in done.stderr, done.stderr
    rows = {row["implementation"]: row for row in json.loads(done.stdout)["verifications"]}
    assert rows["native"]["status"] == "verified"
    assert (rows["broken"]["status"], rows["small"]["status"]) == ("failed", "failed")
    assert "broken.json: it cannot be compiled: main.cpp:4:" in rows["broken"]["reason"]
    assert "error: " in rows["broken"]["reason"] and "z" in rows["broken"]["reason"]
    assert "small.json: it cannot be compiled" in rows["small"]["reason"]


def test_a_candidate_for_another_definition_is_refused(trace_set: Path) -> None:
    other = str(trace_set / "solutions" / "us" / "masked.json")
    done = pairbench(trace_set, "judge", str(of(trace_set, "double")), other)
    assert done.returncode == 2 and "it is for 'masked', not for 'double'" in done.stderr


def test_a_solution_is_loaded_where_it_is_called_and_changes_no_problem(trace_set: Path) -> None:
    hostile = """
        import sys
        (problem,) = (one for name, one in sys.modules.items() if name.startswith("pairbench_suites.") and name.endswith(".reference"))
        problem.run.__code__ = (lambda x: x).__code__
        def run(x, y):
            y.copy_(x)
    """
    mine = save(trace_set.parent / "hostile.json", solution("hostile", "double", hostile))
    chosen = (str(of(trace_set, "double")), "--against", str(mine), "-i", "hostile", "-i", "sum", "--format", "json")
    rows = json.loads(pairbench(trace_set, "verify", *chosen).stdout)["verifications"]
    statuses = {(row["implementation"], row["status"]) for row in rows}
    assert statuses == {("baseline", "verified"), ("sum", "verified"), ("hostile", "failed")}, rows
    assert all("replaces the code of" in row["reason"] for row in rows if row["implementation"] == "hostile")


def test_names_become_axes_and_cases(trace_set: Path) -> None:
    keys = [case.key for case in only(of(trace_set, "double")).cases]
    assert keys == [
        "double[M=3,workload=11111111]",
        "double[M=8,workload=22222222-aa]",
        "double[M=8,workload=22222222-bb]",
    ], "the smallest is smoke, and a uuid is cut where its beginning tells"
    assert [case.key for case in only(of(trace_set, "masked")).cases] == ["masked[axis_workload=5,workload=77777777]"]
    suites = find_suites((trace_set,))
    assert [file.stem for file in suites] == ["broken", "constant", "double", "gather", "masked"], "solutions are none"


def test_inputs_have_the_forms_of_the_definition(trace_set: Path) -> None:
    operator = only(of(trace_set, "gather"))
    found = inputs_of(operator)
    assert list(found) == ["x", "rows", "scale", "factor", "nothing", "axis sizes"]
    assert found["rows"].tolist() == [5, 0, 0, 3] and found["rows"].dtype == torch.int32
    assert found["scale"].shape == () and (found["factor"], found["nothing"]) == (0.5, None)
    assert torch.equal(found["x"], inputs_of(operator)["x"]), "the same seed, the same values"
    said = left_out(operator)
    assert "line 2: the input 'rows': there is no 'blob/workloads/gone.safetensors' in" in said
    assert "line 3: the input 'rows': pointer.safetensors is a pointer of Git LFS" in said
    assert "line 4: the axis 'K' is None, expected a whole number" in said
    assert operator.cost is None and only(of(trace_set, "double")).cost, "indices may read a part of an input"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ({"type": "random", "path": 3}, ""),
        ({"type": "dream"}, "the input 'x' is {'type': 'dream'}, expected random, scalar with value"),
        ({"type": "custom"}, "the input 'x' is {'type': 'custom'}, expected"),
        ({"type": "scalar"}, "the input 'x' is {'type': 'scalar'}, expected"),
        (
            {"type": "safetensors", "path": "rows.safetensors"},
            "the input 'x' is {'type': 'safetensors', 'path': 'rows.safetensors'}, expected",
        ),
    ],
)
def test_a_workload_that_cannot_be_taken_is_left_out(tmp_path: Path, kind: dict[str, Any], words: str) -> None:
    root = tmp_path / "set"
    path = save(of(root, "d"), definition("d", "def run(x):\n    return x * 2\n"))
    safetensors(root / "rows.safetensors", rows=torch.zeros(2))
    save(
        root / "workloads" / "d.jsonl",
        workload("a", {"M": 2}),
        workload("b", {"M": 2}, x=kind),
        "{",
        workload("a", {"M": 4}),
    )
    operator = only(path)
    said = left_out(operator)
    assert words in said and len(operator.cases) == (1 if words else 2)
    assert (
        "d.jsonl, line 3: no JSON: Expecting property name" in said
        and "line 4: the uuid 'a' is that of an earlier line" in said
    )


@pytest.mark.parametrize(
    ("file", "key", "words"),
    [
        ("rows", "no", "'x' of 'rows.safetensors' cannot be read: File does not contain tensor no"),
        ("rows", "rows", "is torch.int32 of (2,), expected torch.float32 of (2, 24)"),
        ("short", "rows", "'x' of 'short.safetensors' cannot be read"),
    ],
)
def test_a_tensor_that_does_not_fit_its_definition_is_refused(tmp_path: Path, file: str, key: str, words: str) -> None:
    path = save(of(tmp_path, "d"), definition("d", "def run(x):\n    return x * 2\n"))
    safetensors(tmp_path / "rows.safetensors", rows=torch.zeros(2))
    (tmp_path / "short.safetensors").write_bytes(b"\xff\xff\0\0\0\0\0\0{}")
    stored = {"type": "safetensors", "path": f"{file}.safetensors", "tensor_key": key}
    save(tmp_path / "workloads" / "d.jsonl", workload("a", {"M": 2}, x=stored))
    with pytest.raises(DeclarationError) as raised:
        inputs_of(only(path))
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"inputs": None}, "has None as 'inputs', expected an object"),
        ({"inputs": {}}, "it has no inputs, expected at least one"),
        ({"inputs": {"x": spec("L")}}, "inputs 'x' has the axis 'L', expected one of M, N"),
        (
            {"inputs": {"x": spec("M", dtype="float4_e2m1fn_x2")}},
            "has the dtype 'float4_e2m1fn_x2', which cannot be taken",
        ),
        (
            {"inputs": {"x": {"shape": "M", "dtype": "bool"}}},
            "expected a dtype, and a list of axes, or null, as shape",
        ),
        ({"axes": {"M": {"type": "size"}}}, "the axis 'M' is {'type': 'size'}, expected type var, const"),
        ({"reference": "x = 3"}, "d.json: its reference defines no function run"),
        (
            {"reference": "def run(x):\n    return (x"},
            "d.json: reference.py, line 2: SyntaxError: '(' was never closed",
        ),
        (
            {"reference": "import no_such_package\ndef run(x): ..."},
            "d.json: ModuleNotFoundError: No module named",
        ),
        (
            {"axes": {"M": {"type": "expr", "expression": "__import__('os')"}, "N": {"type": "const", "value": 1}}},
            "the axis 'M' is \"__import__('os')\", expected a whole number",
        ),
    ],
)
def test_a_definition_that_cannot_be_taken_says_where_and_why(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    path = save(of(tmp_path, "d"), definition("d", "def run(x):\n    return x\n") | change)
    save(tmp_path / "workloads" / "d.jsonl", workload("a", {"M": 2}))
    with pytest.raises(SuiteError) as raised:
        only(path)
    assert words in str(raised.value) and "d.json" in str(raised.value)


def test_no_workloads_are_said(tmp_path: Path) -> None:
    path = save(of(tmp_path, "d"), definition("d", "def run(x):\n    return x\n"))
    (tmp_path / "solutions").mkdir()
    with pytest.raises(SuiteError, match="expected its workloads as workloads/"):
        only(path)
    save(tmp_path / "workloads" / "d.jsonl", {"definition": "e", "workload": workload("a", {"M": 2})})
    with pytest.raises(
        SuiteError, match=r"no workload can be taken: d\.jsonl, line 1: it is a workload of the definition 'e'"
    ):
        only(path)


def test_candidates_are_solutions_or_files_that_define_run(trace_set: Path) -> None:
    double = of(trace_set, "double")
    assert list(only(double).variants) == ["compiled", "sum", "two_files", "wrong"]
    place = trace_set.parent / "mine"
    save(place / "deep" / "a.json", solution("best", "double", "def run(x, y):\n    y.copy_(x * 2)\n"))
    save(place / "deep" / "b.json", solution("other", "masked", ""))
    save(place / "double.py", "def run(x, y):\n    y.copy_(x + x)")
    save(place / "deep" / "c.json", solution("be st", "double", "def run(x, y):\n    y.copy_(x * 2)\n"))
    save(place / "deep" / "d.json", solution("be_st", "double", "def run(x, y):\n    y.copy_(x * 2)\n"))
    save(place / "deep" / "e.json", solution("best", "double", "def run(x, y):\n    y.copy_(x)\n"))
    operator = only(double, place)
    assert list(operator.variants)[-4:] == ["best", "be_st", "be_st_", "mine"]
    assert "candidate e.json: 'best' is the name of a.json, too" in left_out(operator), "no candidate goes silently"
    twice = trace_set / "solutions" / "us" / "double" / "twice.json"
    assert [list(only(double, one).variants)[-1] for one in (twice, place / "double.py")] == ["sum", "double"]


def test_hashes_follow_what_a_definition_means(trace_set: Path) -> None:
    def hashes(change: dict[str, Any]) -> tuple[str, ...]:
        path = of(trace_set, "double")
        document = json.loads(path.read_text()) | change
        save(path, {name: document[name] for name in sorted(document, reverse=True)})
        return hashes_of(path, only(path))

    first = hashes({})
    assert (
        hashes(
            {"description": "another", "tags": ["new"], "reference": "def run(x):\n    # a remark\n    return x * 2"}
        )
        == first
    )
    changed = hashes({"reference": "def run(x):\n    return x * 3"})
    assert changed[0] != first[0] and changed[3:] == first[3:], "solutions stay what they are"
    file = trace_set / "solutions" / "us" / "double" / "wrong.json"
    save(file, solution("wrong", "double", "def run(x, y):\n    y.copy_(x + 1)\n"))
    other = trace_set.parent / "elsewhere"
    shutil.copytree(trace_set, other)
    moved = hashes_of(of(other, "double"), only(of(other, "double")))
    assert moved[:5] == changed[:5] and moved[5] != changed[5]


def test_a_run_is_exported_as_traces(trace_set: Path) -> None:
    done = pairbench(trace_set, "run", "set/definitions/other/double.json", "-i", "sum", "-i", "wrong", "--tier", "all")
    assert done.returncode == 1, done.stderr
    exported = call_main(trace_set.parent, "export", "flashinfer-trace")
    traces = {(one["solution"], one["workload"]["uuid"]): one for one in map(json.loads, exported.out.splitlines())}
    assert {name for name, _ in traces} <= {"sum", "wrong"} and len(traces) >= 3, exported.err
    wrong, right = (traces.get((name, "11111111-aa")) for name in ("wrong", "sum"))
    assert wrong and wrong["workload"] == workload("11111111-aa", {"M": 3}, x={})
    evaluation = wrong["evaluation"]
    assert evaluation["status"] == "INCORRECT_NUMERICAL" and evaluation["performance"] is None
    assert evaluation["correctness"]["max_absolute_error"] > 0 and "differs from the baseline's" in evaluation["log"]
    if right is None:
        assert "double[M=3,workload=11111111]:sum" in exported.err, "a busy host withheld its speedup"
    else:
        assert right["evaluation"]["status"] == "PASSED" and right["evaluation"]["performance"]["speedup_factor"] > 0
    shutil.rmtree(trace_set)
    gone = call_main(trace_set.parent, "export", "flashinfer-trace")
    assert gone.code == 2 and "definitions that are still in their folder" in gone.err
