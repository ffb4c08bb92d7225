"""Every shell line of every recipe, run as its CI system would: with nothing changed, and with an operator more in a variant.

pip really installs, git really merges, pairbench really measures. Only `gh`, which needs GitHub, is a program that writes
down what it was asked.
"""

import itertools
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests import turns
from tests.builders import git
from tests.integrations.ci_machine import Machine
from tests.integrations.ci_pipelines import PULL_REQUEST, Done, World, github, gitlab
from tests.integrations.ci_systems import Actions, Job, content

MARKER = "<!-- pairbench-gpu -->"
SERIES = "silu[n=1024]-fused"

# On a busy machine the whole is minutes of starting processes.
pytestmark = pytest.mark.timeout(900)

Scenario = tuple[Callable[..., Done], str, bool]
Pipelines = Mapping[Scenario, "Future[Done]"]
# Each pipeline takes some twenty seconds. In CI they take turns, unless recipes or what runs them changed lately.
TURNS: tuple[tuple[Scenario, ...], ...] = (
    ((github, "cpu", True), (gitlab, "cpu", False)),
    ((gitlab, "gpu", True), (gitlab, "gpu", False)),
    ((github, "gpu", True), (github, "gpu", False)),
    ((gitlab, "cpu", True), (github, "cpu", False)),
)
_CHANGES = turns.changed_lately("harness/pairbench/integrations/recipes", "tests/integrations/ci_*.py")
_TURN = None if _CHANGES else turns.turn(len(TURNS))


def runs(*scenarios: Scenario) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def mark(test: Callable[..., None]) -> Callable[..., None]:
        slow: Callable[..., None] = pytest.mark.slow(pytest.mark.runs(*scenarios)(test))
        return slow if on_turn(scenarios, _TURN) else pytest.mark.skip("its turn comes with another commit")(slow)

    return mark


def on_turn(scenarios: Sequence[Scenario], number: int | None) -> bool:
    """Return whether pipelines are run in a turn, given its number; None is all turns."""
    return number is None or {*scenarios} <= {*TURNS[number]}


@pytest.fixture(scope="module")
def pipelines(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipelines]:
    """Start the pipelines that the chosen tests need, two at a time: they wait much for processes to start."""
    ours = (item for item in request.session.items if item.path == request.path)
    marks = (mark for item in ours if not item.get_closest_marker("skip") for mark in item.iter_markers("runs"))
    needed = dict.fromkeys(scenario for mark in marks for scenario in mark.args)
    world = World.make(tmp_path_factory.mktemp("recipes"))
    with ThreadPoolExecutor(2) as threads:
        yield {key: threads.submit(key[0], world, key[1], changed=key[2]) for key in needed}
        threads.shutdown(cancel_futures=True)


def runs_stored(pipelines: Pipelines, system: Callable[..., Done], changed: bool) -> int:
    """Return how many runs the store has after the pipeline of a GPU."""
    store = pipelines[system, "gpu", changed].result().machine.folder / "store"
    return len(list(store.rglob("records/**/*.parquet")))


def is_clean(text: str) -> bool:
    return "### pairbench: no regression" in text and "suites/silu.py" in text


def names_the_planted(text: str) -> bool:
    """Return whether a comparison says which series does more than before."""
    plain = text.replace("\\", "")  # which keeps Markdown from reading names as markup
    return "### pairbench: 1 regression" in plain and SERIES in plain and "1 more dispatched operators" in plain


def has_site(folder: Path) -> bool:
    return "silu" in (folder / "index.html").read_text()


def failures(report: Path) -> list[str]:
    cases = ET.parse(report).iter("testcase")
    return [str(case.get("name")) for case in cases if any(end.tag in ("failure", "error") for end in case)]


def test_github_gpu_replaces_its_comment(tmp_path: Path) -> None:
    machine = Machine.make(tmp_path / "machine", comments="41\n42\n")
    (tmp_path / "machine" / "artifacts" / "pairbench-comment").mkdir(parents=True)
    (tmp_path / "machine" / "artifacts" / "pairbench-comment" / "comment.md").write_text(MARKER)
    event = {"event_name": "pull_request", "repository": "team/ops", "event": {"pull_request": PULL_REQUEST}}
    actions = Actions(machine=machine, checkout=tmp_path, event={**event, "token": "no token"}, changed={})
    measured = Job(result="failure", outputs={"comment": "true"}, folder=tmp_path)
    job = actions.run_job("comment", content("github-gpu"), {"measure": measured})
    assert job.result == "success", job.logs
    _, replaced = Done(machine=machine, checkout=tmp_path, jobs={}).asked
    assert replaced["arguments"][:4] == ["api", "--method", "PATCH", "repos/team/ops/issues/comments/41"]
    assert replaced["body"] == MARKER


@runs((github, "cpu", True))
def test_github_cpu_planted(pipelines: Pipelines) -> None:
    done = pipelines[github, "cpu", True].result()
    job = done.jobs["gate"]
    failed = [name for name, how in job.conclusions.items() if how == "failure"]
    assert failed == ["Gate"], "\n".join(job.logs[name] for name in failed)
    assert job.result == "failure"
    assert names_the_planted(job.summary) and SERIES in job.logs["Gate"]
    assert [SERIES in name for name in failures(job.folder / "pairbench-junit.xml")] == [True]
    assert "::error title=regression%3A silu fused,file=suites/silu.py::" in job.logs["Say what changed"]
    assert has_site(done.machine.folder / "artifacts" / "pairbench-cpu" / "pairbench-site")
    assert job.conclusions["actions/cache/save"] == "skipped"
    base = git(job.folder, "rev-parse", "HEAD^1")  # and not with the history
    assert base != git(job.folder, "rev-parse", "origin/first") and base[:7] in job.summary


@runs((github, "gpu", True))
def test_github_gpu_planted(pipelines: Pipelines) -> None:
    done = pipelines[github, "gpu", True].result()
    job = done.jobs["measure"]
    assert [name for name, how in job.conclusions.items() if how == "failure"] == ["Measure"], job.logs
    assert job.result == "failure" and job.summary.count("### pairbench") == 1
    assert names_the_planted(job.summary) and "are measured again" in job.logs["Measure"]
    assert done.jobs["comment"].result == "success" and done.jobs["pages"].result == "skipped"
    assert has_site(done.machine.folder / "artifacts" / "pairbench-gpu")
    asked, posted = done.asked
    assert asked["arguments"][:3] == ["api", "--paginate", "repos/team/ops/issues/7/comments"]
    assert posted["arguments"][:5] == ["pr", "comment", "7", "--repo", "team/ops"]
    assert posted["body"].startswith(f"{MARKER}\n") and names_the_planted(posted["body"])


@runs((gitlab, "cpu", True))
def test_gitlab_cpu_planted(pipelines: Pipelines) -> None:
    done = pipelines[gitlab, "cpu", True].result()
    assert done.code == 1, done.log
    assert names_the_planted((done.checkout / "pairbench-note.md").read_text()), done.log
    assert has_site(done.checkout / "pairbench-site") and (done.checkout / "pairbench-junit.xml").is_file()
    assert git(done.checkout, "worktree", "list").count("\n") == 0


@runs((gitlab, "gpu", True))
def test_gitlab_gpu_planted(pipelines: Pipelines) -> None:
    done = pipelines[gitlab, "gpu", True].result()
    assert done.code == 1, done.log
    assert names_the_planted((done.checkout / "pairbench-note.md").read_text()), done.log
    assert "are measured again" in done.log and has_site(done.checkout / "pairbench-site")
    assert not list((done.machine.folder / "tmp").glob("tmp.*")), "what the job put there is gone"


@runs((github, "cpu", False))
def test_github_cpu_unchanged(pipelines: Pipelines) -> None:
    job = pipelines[github, "cpu", False].result().jobs["gate"]
    assert job.result == "success", job.logs
    assert is_clean(job.summary) and has_site(job.folder / "pairbench-site")
    assert failures(job.folder / "pairbench-junit.xml") == []
    assert job.conclusions["Measure the base of the pull request on this machine"] == "skipped"
    assert job.conclusions["actions/cache/save"] == "success"


@runs((github, "gpu", False))
def test_github_gpu_unchanged(pipelines: Pipelines) -> None:
    done = pipelines[github, "gpu", False].result()
    job = done.jobs["measure"]
    assert job.result == "success", job.logs
    assert is_clean(job.summary) and job.summary.count("### pairbench") == 1
    results = {"measure": "success", "comment": "skipped", "pages": "success"}
    assert {name: other.result for name, other in done.jobs.items()} == results
    assert has_site(done.machine.folder / "artifacts" / "github-pages")
    assert "https://team.github.io/ops" in (job.folder / "pairbench-site" / "feed.xml").read_text()


@runs((gitlab, "cpu", False))
def test_gitlab_cpu_unchanged(pipelines: Pipelines) -> None:
    done = pipelines[gitlab, "cpu", False].result()
    assert done.code == 0, done.log
    assert is_clean((done.checkout / "pairbench-note.md").read_text())
    assert has_site(done.checkout / "pairbench-site") and failures(done.checkout / "pairbench-junit.xml") == []


@runs((gitlab, "gpu", False))
def test_gitlab_gpu_unchanged(pipelines: Pipelines) -> None:
    done = pipelines[gitlab, "gpu", False].result()
    assert done.code == 0, done.log
    assert is_clean((done.checkout / "pairbench-note.md").read_text()) and has_site(done.checkout / "public")
    assert "https://team.example.org/ops" in (done.checkout / "public" / "feed.xml").read_text()


@runs((github, "gpu", True), (github, "gpu", False))
def test_github_only_the_default_branch_adds_to_the_history(pipelines: Pipelines) -> None:
    assert (runs_stored(pipelines, github, True), runs_stored(pipelines, github, False)) == (1, 2)


@runs((gitlab, "gpu", True), (gitlab, "gpu", False))
def test_gitlab_only_the_default_branch_adds_to_the_history(pipelines: Pipelines) -> None:
    assert (runs_stored(pipelines, gitlab, True), runs_stored(pipelines, gitlab, False)) == (1, 2)


def test_every_pipeline_and_every_test_has_its_turn() -> None:
    of_tests = [getattr(value, "pytestmark", []) for name, value in globals().items() if name.startswith("test_")]
    needed = [mark.args for marks in of_tests for mark in marks if mark.name == "runs"]
    assert len(needed) >= 10
    assert all(any(on_turn(scenarios, number) for number in range(len(TURNS))) for scenarios in needed)
    everything = itertools.product((github, gitlab), ("cpu", "gpu"), (True, False))
    assert Counter(itertools.chain(*TURNS)) == Counter(everything)
