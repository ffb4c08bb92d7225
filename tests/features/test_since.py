from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pairbench.errors import UsageError
from pairbench.features.since import FilesSince, TouchedSuite, control_sample, difference
from pairbench.model.case import Case
from pairbench.model.plan import ImplementationDescription, OperatorDescription
from pairbench.workflow.requested import Narrowed
from tests.builders import described, git

SUITE = "import kernels\nfrom pairbench import Operator\n"
Suites = tuple[tuple[str, Path], ...]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = (tmp_path / "repo").resolve()
    for name in ("a", "b", "c"):
        (folder / name).mkdir(parents=True)
        (folder / name / "ops.py").write_text(SUITE)
        (folder / name / "kernels.py").write_text("")
    (folder / ".gitignore").write_text("ignored.py\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "one")
    return folder


def suites(folder: Path) -> Suites:
    return tuple(
        (path.relative_to(folder).as_posix(), path) for path in sorted(folder.glob("*/*.py")) if "ops" in path.name
    )


def touched(folder: Path, olds: dict[Path, Path] | None = None) -> dict[str, tuple[bool, tuple[str, ...]]]:
    """Return the suites that are touched: whether each is new, and what no hash covers."""
    files = FilesSince.of(suites(folder), "HEAD", folder)
    return {one.suite: (one.was is None, one.unhashed) for one in files.touched(suites(folder), olds or {})}


def test_nothing_has_changed(repository: Path) -> None:
    (repository / "README.md").write_text("new")
    (repository / "a" / "unused.py").write_text("new")
    assert touched(repository) == {}


def test_what_is_changed_new_staged_ignored_or_compiled(repository: Path) -> None:
    (repository / "a" / "kernels.py").write_text("import ignored\n")
    (repository / "a" / "ignored.py").write_text("")
    (repository / "b" / "more ops.py").write_text(SUITE)
    (repository / "c" / "kernel.cu").write_text("")
    git(repository, "add", "a/kernels.py")
    assert touched(repository) == {
        "a/ops.py": (False, ()),
        "b/more ops.py": (True, ()),
        "c/ops.py": (False, ("c/kernel.cu",)),
    }


def test_a_suite_that_has_moved_and_one_that_is_gone(repository: Path) -> None:
    new, old = repository / "b" / "newer_ops.py", repository / "b" / "ops.py"
    old.rename(new)
    (repository / "c" / "ops.py").unlink()
    files = FilesSince.of(suites(repository), "HEAD", repository)
    (one,) = files.touched(suites(repository), {new: old})
    assert (one.suite, one.was) == ("b/newer_ops.py", old)
    assert list(files.gone((repository,), {new: old})) == [repository / "c" / "ops.py"]
    assert list(files.gone((repository / "a",), {})) == []


def test_no_such_commit_and_suites_outside_of_its_checkout(repository: Path, tmp_path: Path) -> None:
    for name in ("nothing", "-x", "HEAD~1"):
        with pytest.raises(UsageError, match="no commit, branch or tag"):
            FilesSince.of(suites(repository), name, repository)
    alone = tmp_path / "ops.py"
    alone.write_text(SUITE)
    with pytest.raises(UsageError, match=r"not in a git checkout.*--changed-since compares"):
        FilesSince.of((("ops.py", alone),), "HEAD", tmp_path)
    with pytest.raises(UsageError, match="outside of the repository"):
        FilesSince.of((*suites(repository), ("ops.py", alone)), "HEAD", repository)


TOUCHED = TouchedSuite(suite="ops.py", file=Path("/ops.py"), was=Path("/ops.py"), unhashed=())


def implementation(name: str, digest: str = "1") -> ImplementationDescription:
    return ImplementationDescription(name=name, needs=(), hash=digest)


def operator(
    name: str = "op", suite: str = "ops.py", tiers: tuple[str, ...] = ("smoke", "real")
) -> OperatorDescription:
    return described(
        suite=suite,
        name=name,
        implementations=(implementation("baseline"), implementation("v")),
        cases=tuple(Case(operator=name, axes=(("n", n),), tier=tier) for n, tier in enumerate(tiers)),
        code_digest="c",
    )


@pytest.mark.parametrize(
    ("now", "why"),
    [
        ({}, ""),
        ({"summary": "other words", "costs": {"a": (1.0, 2.0)}}, ""),
        ({"definition_hash": "e"}, "its definition differs"),
        ({"implementations": (implementation("baseline"), implementation("v", "2"))}, "v differs"),
        (
            {"implementations": (implementation("baseline", "2"), implementation("w"))},
            "baseline differs, w is new, v is gone",
        ),
        ({"cases": operator(tiers=("smoke",)).cases}, "its cases differ"),
        ({"code_digest": "other"}, "code that it reaches differs"),
    ],
)
def test_what_differs(now: dict[str, Any], why: str) -> None:
    assert difference(operator(), replace(operator(), **now), TOUCHED) == why


def test_what_is_new_and_what_no_hash_covers() -> None:
    assert difference(None, operator(), TOUCHED) == "new"
    touched = TOUCHED._replace(unhashed=("mylib/step.py",))
    assert difference(operator(), operator(), touched) == "its suite uses mylib/step.py"


def test_controls_are_few_the_same_and_of_different_suites() -> None:
    many = [operator(f"op{n}_{of}", suite=f"suite{of}.py") for of in range(5) for n in range(20)]
    sample = control_sample(many, {"smoke", "real"})
    assert len(sample) == 3 == len({one.suite for one in sample})
    assert [[case.tier for case in one.cases] for one in sample] == [["real"]] * 3
    assert control_sample(list(reversed(many)), {"smoke", "real"}) == sample
    # One that is touched is replaced, and the others stay.
    others = [one for one in many if one.name != sample[0].name]
    assert {one.name for one in control_sample(others, {"smoke", "real"})} >= {one.name for one in sample[1:]}
    assert len(control_sample([operator("a"), operator("b")], {"smoke"})) == 1
    assert control_sample([operator("a", tiers=("headline",))], {"smoke"}) == ()
    assert control_sample([], {"smoke"}) == ()


def test_what_the_store_is_told() -> None:
    """What is whole by its name, so that a case that vanishes is missing; what is taken in part by its cases of these tiers."""
    narrowed = Narrowed(
        ref="main",
        sha="0123456789",
        changed={("ops.py", "whole"): "new", ("ops.py", "part"): "v differs"},
        whole=frozenset({("ops.py", "whole")}),
        control={("ops.py", "still"): "still[n=0]"},
        left_out=tuple(("ops.py", f"op{n}") for n in range(50)),
        gone=(("ops.py", "past"), ("old.py", None)),
    )
    operators = [operator("whole"), operator("part"), operator("still", tiers=("smoke",))]
    assert list(narrowed.select(operators, {"smoke"}, {"part[n=1]"})) == [
        *(("ops.py", name) for name in ("whole", "part[n=0]", "part[n=1]", "still[n=0]")),
        *narrowed.gone,
    ]
    told = "\n".join(narrowed.lines())
    for words in (
        "main (0123456)",
        "whole (new)",
        "still[n=0]",
        "50 operators untouched",
        "and 10 more",
        "past, old.py",
    ):
        assert words in told
    assert len(narrowed.plain()["left_out"]) == 50
