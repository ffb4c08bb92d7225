"""What pytest collects of a project with suites: names, markers, selections, and what happens to a broken suite."""

import re
from pathlib import Path

import pytest

from tests.builders import git
from tests.corpora.conftest import definition, save, workload
from tests.integrations.pytest_project import EXTRA, SUITE, Project, names

SMOKE = ("baseline", "scaled", "kernel")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def collected(project: Project, *arguments: str) -> list[str]:
    done = project.pytest("--collect-only", "-q", *arguments)
    assert done.code == 0, done.out
    return names(done)


def test_an_item_for_every_operator_case_implementation_and_mode(project: Project) -> None:
    found = collected(project, "suites", "--pairbench-mode", "eager,compile", "--pairbench-tier", "all")
    assert found == [
        f"suites/double.py::double[n={n}]-{name}-{mode}"
        for n in (0, 256, 65536)
        for mode in ("eager", "compile")
        for name in SMOKE
    ]


def test_without_a_tier_it_is_what_suits_a_cpu(project: Project) -> None:
    found = project.pytest("--collect-only", "-q", "suites")
    assert {re.findall(r"\[.*\]", name)[0] for name in names(found)} == {"[n=0]", "[n=256]"}
    assert "6/9 tests collected (3 deselected)" in found.out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-m", "variant and smoke"], ["[n=256]-scaled", "[n=256]-kernel"]),
        (["-m", "baseline and real"], ["[n=65536]-baseline"]),  # a tier that -m speaks of is taken
        (["-m", "edge and not gpu"], ["[n=0]-baseline", "[n=0]-scaled"]),
    ],
)
def test_pytests_own_selections(project: Project, arguments: list[str], expected: list[str]) -> None:
    assert collected(project, "suites", *arguments) == [f"suites/double.py::double{name}-eager" for name in expected]


def test_what_is_named_in_full_is_wanted_whatever_its_tier(project: Project) -> None:
    wanted = [f"suites/double.py::double[n={n}]-scaled-eager" for n in (256, 65536)]
    assert collected(project, *wanted) == wanted


def test_a_definition_of_flashinfer_trace_that_is_named(project: Project) -> None:
    data = project.folder / "data"
    save(data / "definitions" / "twice.json", definition("twice", "def run(x):\n    return x * 2\n"))
    save(data / "workloads" / "twice.jsonl", workload("a", {"M": 3}))
    assert collected(project, "data/definitions/twice.json") == [
        f"data/definitions/twice.json::twice[M=3,workload=a]-{name}-eager" for name in ("baseline", "compiled")
    ]


def test_beside_a_conftest_with_hooks_of_its_own(project: Project) -> None:
    (project.folder / "tests").mkdir()
    (project.folder / "tests" / "conftest.py").write_text("def pytest_ignore_collect(): return None\n")
    (project.folder / "tests" / "test_one.py").write_text("def test_one(): pass\n")
    files = [name.split("::")[0] for name in collected(project, "tests/test_one.py", "suites/double.py")]
    assert set(files) == {"tests/test_one.py", "suites/double.py"}


def test_suites_in_folders_below_a_listed_one(project: Project) -> None:
    family = project.folder / "suites" / "family" / "deeper"
    family.mkdir(parents=True)
    (family / "own.py").write_text(SUITE)
    (family / "helpers.py").write_text("import torch\n")
    for argument in ("suites", "."):
        found = [name.split("::")[0] for name in collected(project, argument)]
        assert sorted(found) == ["suites/double.py"] * 6 + ["suites/family/deeper/own.py"] * 6
    assert {name.split("::")[0] for name in collected(project, "suites/family")} == {"suites/family/deeper/own.py"}


def test_a_suite_that_no_setting_lists_is_collected_where_it_is_named(project: Project) -> None:
    (project.folder / "more").mkdir()
    (project.folder / "more" / "own.py").write_text(SUITE)
    (project.folder / "more" / "test_own.py").write_text(
        "from pairbench import Operator\n\ndef test_it(): Operator('x')\n"
    )
    (project.folder / "more" / "helpers.py").write_text(f"SUITE = {SUITE!r}\n")  # a mention is no declaration
    assert {name.split("::")[0] for name in collected(project, "more")} == {"more/own.py", "more/test_own.py"}
    assert {name.split("::")[0] for name in collected(project, ".")} == {"suites/double.py", "more/test_own.py"}


def test_a_folder_behind_a_link_is_the_folder(project: Project) -> None:
    (project.folder / "linked").symlink_to(project.folder / "suites")
    assert {name.split("::")[0] for name in collected(project, "linked")} == {"linked/double.py"}


def test_a_project_without_suites_is_left_alone(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.start_interpreters()
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text(
        "import sys\n\ndef test_it(benchmark):\n    benchmark(lambda: 1)\n"
        "    assert not {'torch', 'pandas', 'pyarrow', 'numpy'} & set(sys.modules)\n"
    )
    done = project.pytest("tests", "--benchmark-autosave")
    assert done.code == 0 and "pairbench:" not in done.out, done.out
    (saved,) = project.saved()
    assert saved.parent.parent.name == ".benchmarks"  # and its files stay where they were
    assert "pairbench" not in project.document(saved)["machine_info"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("from pairbench import Operator\n\nx = (\n", "suite double.py, line 3: SyntaxError"),
        ("import os\nfrom pairbench import Operator\nos._exit(3)\n", "ended its process with exit status 3"),
    ],
)
def test_a_broken_suite_names_file_and_line_and_does_not_hide_others(project: Project, text: str, said: str) -> None:
    (project.folder / "suites" / "fine.py").write_text(SUITE)
    project.suite.write_text(text)
    done = project.pytest("--collect-only", "-q", "suites")
    assert done.code == 2 and said in done.out, done.out
    assert "Traceback" not in done.out and "ERROR suites/double.py" in done.out
    assert len([name for name in names(done) if name.startswith("suites/fine.py")]) == 6


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--pairbench-device", "cuda:7"], "--device 'cuda:7' is not here"),
        (["--pairbench-rounds", "0"], "setting 'rounds' is 0"),
        (["--pairbench-tf32=maybe"], "ignored explicit argument 'maybe'"),
        (["--pairbench-gate", "suites"], "write --pairbench-gate=REFERENCE"),
        (["--pairbench-gate", "-p", "no:benchmark"], "--pairbench-gate needs pytest-benchmark"),
        (["--pairbench-gate", "--benchmark-disable"], "leave out --benchmark-disable"),
        (["--pairbench-gate", "-n", "1"], "leave out -n"),
        (["--pairbench-gate", "--dist", "no", "-n", "2"], "leave out -n"),
        (["--pairbench-gate", "-d", "--tx", "popen"], "leave out -n"),
        (["--pairbench-device", "cuda:7", "-n", "2"], "--device 'cuda:7' is not here"),
    ],
)
def test_a_wrong_option_is_a_usage_error(project: Project, arguments: list[str], said: str) -> None:
    done = project.pytest("suites", *arguments)
    assert done.code == 4 and said in done.out, done.out
    assert "Traceback" not in done.out


def test_only_what_has_changed_since_a_commit(project: Project) -> None:
    (project.suite.parent / "third.py").write_text(SUITE.replace('"double"', '"third"').replace("n=256", "n=257"))
    for arguments in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "one")):
        git(project.suite.parent, *arguments)
    changed = ("suites", "--pairbench-changed-since", "HEAD", "--benchmark-disable", "-q")
    none = project.pytest(*changed)
    assert none.code == 0 and "No operator differs from HEAD" in none.out
    project.change(EXTRA)
    some = project.pytest(*changed, "--collect-only")
    assert some.code == 0 and "Changed since HEAD" in some.out and "double (scaled differs)" in some.out
    assert {name.partition("::")[2].partition("-")[0] for name in names(some)} == {
        "double[n=0]",
        "double[n=256]",
        "third[n=257]",
    }  # the last one is the control
