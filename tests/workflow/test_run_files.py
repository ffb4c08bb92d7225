from collections.abc import Hashable, Sequence
from dataclasses import replace
from pathlib import Path

from pairbench.analyze.records import Run
from pairbench.model.case import Case, make_case
from pairbench.model.environment import Commit, Environment
from pairbench.model.outcome import Outcome, Status
from pairbench.model.plan import ImplementationDescription
from pairbench.model.record import Record, Samples
from pairbench.store.reader import read_run, read_samples
from pairbench.store.writer import RunWriter
from pairbench.workflow.record import Recorder
from tests.builders import described
from tests.execute.made import BASELINE, CPU, VARIANT, timed_round

RUN = Run(
    run_id="20260102T030405-abcdef",
    started_at="2026-01-02T03:04:05+00:00",
    commit=Commit(sha="0" * 40, committed_at="2026-01-01T00:00:00+00:00", branch=None, dirty=False),
)
ENVIRONMENT = Environment(
    device=CPU, driver=None, cuda=None, cudnn=None, torch="2", triton=None, python="3", hostname="box", cpu="a CPU"
)
ENTRIES = (BASELINE, VARIANT)


def outcomes(case: Case, rounds: int) -> list[Outcome]:
    """Return what a case came to in its first rounds."""
    implementations = tuple(ImplementationDescription(name=one.implementation, needs=(), hash="h") for one in ENTRIES)
    operator = described(implementations=implementations, cases=(case,))
    several = tuple(timed_round(*ENTRIES, index=index, blocks=2) for index in range(rounds))
    return [Outcome(operator=operator, case=case, entry=one, status=Status.MEASURED, rounds=several) for one in ENTRIES]


class CountingWriter(RunWriter):
    """Counts the rows that it is given, and stores nothing."""

    def __init__(self) -> None:
        super().__init__("nowhere", run_id="run", device_slug="cpu", month="2026-01")
        self.rows = 0

    def write_case(self, case: Hashable, records: Sequence[Record]) -> None:
        self.rows += len(records)

    def append_records(self, records: Sequence[Record]) -> None:
        self.rows += len(records)

    def append_samples(self, samples: Sequence[Samples]) -> None:
        self.rows += len(samples)


def made(count: int) -> list[Case]:
    return [make_case("op", {"rows": number}, "smoke") for number in range(count)]


def test_rows_written_grow_with_the_cases_and_not_with_their_square() -> None:
    written = {}
    for count in (3, 12):
        writer = CountingWriter()
        recorder = Recorder(run=RUN, environment=ENVIRONMENT, records=[], writer=writer)
        for index in range(3):
            for case in made(count):
                recorder.hold(outcomes(case, index + 1))
        for case in made(count):
            recorder.keep(outcomes(case, 3))
        written[count] = writer.rows
    # Of each case: two rows after each of three rounds and at the end, and the samples of both in each round.
    assert written == {3: 3 * (2 * 4 + 2 * 3), 12: 12 * (2 * 4 + 2 * 3)}


def test_after_every_case_of_every_round_the_store_has_what_is_known(tmp_path: Path) -> None:
    cases, known = made(3), dict[str, int]()
    with RunWriter(tmp_path, run_id=RUN.run_id, device_slug="a-cpu", month="2026-01") as writer:
        recorder = Recorder(run=RUN, environment=ENVIRONMENT, records=[], writer=writer)
        for index in range(3):
            for case in cases:
                recorder.hold(outcomes(case, index + 1))
                known[case.key] = index + 1
                stored = read_run(tmp_path).value
                assert len(stored) == 2 * len(known)
                assert {record.case: record.n_rounds for record in stored} == known
        for case in cases:
            recorder.keep(outcomes(case, 3))
            assert len(read_run(tmp_path).value) == 2 * len(cases)
    assert [path.name for path in (tmp_path / "records").rglob("*.parquet")] == [f"{RUN.run_id}.parquet"]
    final = read_run(tmp_path).value
    assert sorted(final, key=str) == sorted(recorder.records, key=str) and len(final) == 2 * len(cases)
    assert len(read_samples(tmp_path, RUN.run_id).value) == 2 * 3 * len(cases)


def test_two_devices_of_one_model_share_the_files_and_not_the_rows(tmp_path: Path) -> None:
    (case,) = made(1)
    with RunWriter(tmp_path, run_id=RUN.run_id, device_slug="a-cpu", month="2026-01") as writer:
        for uuid in ("GPU-0", "GPU-1"):
            environment = replace(ENVIRONMENT, device=replace(CPU, uuid=uuid))
            recorder = Recorder(run=RUN, environment=environment, records=[], writer=writer)
            recorder.hold(outcomes(case, 1))
        assert len(read_run(tmp_path).value) == 4
    assert sorted(record.device_uuid or "" for record in read_run(tmp_path).value) == ["GPU-0"] * 2 + ["GPU-1"] * 2
