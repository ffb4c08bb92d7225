"""One candidate for one problem, one answer: right or wrong, how fast, and at what cost; for people and for programs that write kernels."""

import contextlib
import json
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pairbench.config import Config
from pairbench.errors import InterruptedRunError, PairbenchError, SuiteError, UsageError
from pairbench.execute.isolation import can_be_kept_from
from pairbench.model.outcome import NOTHING_RIGHT, Status
from pairbench.model.plain import Value
from pairbench.model.plan import BASELINE, OperatorDescription
from pairbench.model.record import Record, p50_of, result_of, speedup_over
from pairbench.own_folders import held_folder
from pairbench.report.render import to_json
from pairbench.report.rows import most
from pairbench.report.units import ratio, ratio_range
from pairbench.stats import Interval
from pairbench.suite.modules import PROBLEM
from pairbench.workflow.setup import open_request

if TYPE_CHECKING:  # these load what runs workers
    from pairbench.execute.parent.launch import Launchers

_VERDICTS = {  # each with its sentence and the exit code of the command
    "faster": ("right, and faster than the baseline in every case", 0),
    "slower": ("right, and slower than the baseline in every case", 0),
    "mixed": ("right, and neither faster nor slower in every case", 0),
    "right": ("right; how fast is not known, for the host was busy", 0),
    "wrong": ("another result than the baseline's, or a call that depends on other calls or changes its inputs", 1),
    "failed": ("it does not load or run, has figures that cannot be right, or changes what others share", 1),
    "refused": ("the problem cannot tell right from wrong, or does not run", 3),
    "skipped": ("it was not tried", 3),
}
_LONGEST = 1 << 16  # bytes of a request
_PATIENCE_S = 10.0  # for a client to send its request, as others wait
_COPIED = (  # the columns of a record that an answer has, too
    *("case", "mode", "max_abs_error", "oracle_ratio", "margin", "launches_per_call", "ops_per_call"),
    *("peak_bytes", "saved_bytes", "roofline_fraction"),
)


class CaseAnswer(Value):
    """The answer in one case. Latencies are in ns; each is an estimate with its 95 % interval, null where it is not known."""

    case: str | None
    mode: str | None
    code: str  # `right`, `mismatched`, `failed`, `timeout`, `oom`, `skipped`; `refused` if the baseline has no result
    reason: str | None
    latency: str | None  # the latency that the figures are of: `device` or `call`
    p50_ns: Interval | None
    over_baseline: Interval | None
    over_compiled: Interval | None
    over_best: Interval | None
    """How much faster it is than the fastest other implementation; the interval is the widest that both speedups allow."""
    best: str | None
    max_abs_error: float | None
    oracle_ratio: float | None
    margin: float | None
    launches_per_call: float | None
    ops_per_call: float | None
    peak_bytes: int | None
    saved_bytes: int | None
    registers: int | None
    """Most registers a thread of its kernels; `spills` are most words of 4 bytes a thread that a kernel in Triton spilled."""
    spills: int | None
    roofline_fraction: float | None
    sol_score: float | None
    """SOL-ExecBench's score: 0.5 at the latency of the faster of baseline and compiled, 1 at this device's roof; null without a declared cost."""


class Answer(Value):
    schema: str = "pairbench-judge/1"
    """Fields may be added; the version rises where one is removed or means something else."""
    verdict: str
    sentence: str
    exit_code: int
    suite: str
    operator: str
    candidate: str
    device: str | None
    kept_from: tuple[str, ...] = ()
    """The resources that `--isolated` kept from the candidate: `network`, `files`."""
    cases: tuple[CaseAnswer, ...]

    def lines(self) -> list[str]:
        lines = [f"{self.candidate} of {self.operator}: {self.verdict} ({self.sentence})"]
        for case in self.cases:
            over = {"the baseline": case.over_baseline, "compiled": case.over_compiled}
            if case.best not in (None, BASELINE, *over):
                over |= {f"{case.best}, the fastest other": case.over_best}
            known = ((name, one) for name, one in over.items() if one is not None)
            speedups = [f"{ratio(one.estimate)} ({ratio_range(one.low, one.high)}) over {name}" for name, one in known]
            lines.append(f"  {case.case}: {', '.join([case.code, *speedups])}")
            lines += [f"    {case.reason}"] if case.reason else []
        return lines


def judge(
    config: Config,
    device: str,
    problem: str,
    candidate: str,
    *,
    meanwhile: Iterable[str] = (),
    launchers: "Launchers | None" = None,
) -> Answer:
    """Judge one candidate. `meanwhile` and `launchers` are those of `open_request`.

    Raises:
        PairbenchError: if the problem or the candidate cannot be taken.
        InterruptedRunError: on Ctrl-C.
    """
    from pairbench.workflow.devices import one_device

    is_file, against = Path(candidate).is_file(), str(Path(candidate).resolve())
    with held_folder() as folder:
        settings = replace(config.settings, against=against if is_file else "")
        config = replace(config, store=str(folder), settings=settings)
        with open_request(config, [problem], device, meanwhile=meanwhile, launchers=launchers) as request:
            from pairbench.workflow.record import record_run

            if broken := request.chosen.survey.broken:
                raise SuiteError("; ".join(suite.reason for suite in broken))
            operators = request.chosen.operators()
            name = candidate_of(operators, candidate, is_file=is_file)
            one_device(device, request.devices)
            done = record_run(request)
    if done.error is not None:
        raise done.error
    if done.interrupted:
        raise InterruptedRunError
    kept_from = can_be_kept_from() if settings.isolated else ()
    return replace(answer_of(operators[0], name, done.records), kept_from=kept_from)


def serve(config: Config, device: str, address: str, notify: Callable[[str], None]) -> None:
    """Judge candidates until Ctrl-C, one at a time, for programs that connect to a Unix socket; fork servers stay from one to the next.

    A connection is one request: a line of JSON with `problem` and `candidate`, answered by an `Answer`, or `error` and `exit_code`.
    """
    from pairbench.execute.parent.launch import open_launchers

    with _listen(address) as listener, open_launchers(os.environ) as launchers:
        notify(f"judging at {address} (Ctrl-C ends it)")
        while True:
            connection, _ = listener.accept()
            with connection:
                if not (line := _line_from(connection)):
                    continue
                try:
                    problem, candidate = _request_in(line)
                    document = to_json(judge(config, device, problem, candidate, launchers=launchers))
                except PairbenchError as error:
                    notify(str(error))
                    document = json.dumps({"error": str(error), "exit_code": error.exit_code}, ensure_ascii=False)
                with contextlib.suppress(OSError):
                    connection.sendall(document.encode())


def _line_from(connection: socket.socket) -> bytes:
    """Return a client's line; an empty one where it hangs up."""
    connection.settimeout(_PATIENCE_S)
    with contextlib.suppress(OSError), connection.makefile("rb") as lines:
        return lines.readline(_LONGEST)
    return b""


def _request_in(line: bytes) -> tuple[str, str]:
    with contextlib.suppress(ValueError, RecursionError):
        match json.loads(line):
            case {"problem": str(one), "candidate": str(other), **more} if not more and (one + other).isprintable():
                return one, other
    expected = '{"problem": PATH, "candidate": PATH_OR_VARIANT} in one line'
    raise UsageError(f"the request {line[:200].decode(errors='replace')!r} is unknown, expected {expected}")


@contextlib.contextmanager
def _listen(address: str) -> Iterator[socket.socket]:
    """Give a listening Unix socket that only this user can connect to; its file is removed in the end."""
    kind, _, path = address.partition(":")
    if kind != "unix" or not path:
        raise UsageError(f"--serve {address!r} is unknown, expected unix:PATH, such as unix:/tmp/judge.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            if Path(path).is_socket():
                with socket.socket(socket.AF_UNIX) as other, contextlib.suppress(ConnectionRefusedError):
                    other.connect(path)
                    raise UsageError(f"--serve {address!r}: another process listens there")
                Path(path).unlink()  # left by a process that was killed
            listener.bind(path)
            Path(path).chmod(0o600)  # before anybody can connect
            listener.listen()
        except OSError as error:
            raise UsageError(f"--serve {address!r} cannot be had: {error.strerror or error}") from error
        try:
            yield listener
        finally:
            Path(path).unlink(missing_ok=True)


def candidate_of(operators: Sequence[OperatorDescription], candidate: str, *, is_file: bool) -> str:
    """Return the name of the variant that is to be judged; that of a file is the last."""
    if len(operators) != 1:
        expected = "expected one: a problem's file, or file::operator"
        raise UsageError(f"PROBLEM selects {len(operators)} operators, {expected}")
    names = [one.name for one in operators[0].implementations if one.name != BASELINE]
    if is_file and not operators[0].source.startswith(PROBLEM):
        expected = f"expected a problem of another corpus as PROBLEM, or one of {', '.join(names)} as CANDIDATE"
        raise UsageError(f"CANDIDATE is a file, and {operators[0].name!r} is an operator of a suite, {expected}")
    if not is_file and candidate not in names:
        expected = f"expected a candidate's file, or one of {', '.join(names)}"
        raise UsageError(f"CANDIDATE {candidate!r} is no file and no variant of {operators[0].name!r}, {expected}")
    why = f"{candidate!r} is none for {operators[0].name!r}; see docs/problems.md" if names[-1] == "compiled" else None
    if is_file and (why := next((one for one in operators[0].left_out if one.startswith("candidate ")), why)):
        raise UsageError(f"CANDIDATE cannot be taken: {why}")
    return names[-1] if is_file else candidate


def answer_of(operator: OperatorDescription, candidate: str, records: Iterable[Record]) -> Answer:
    by_case: dict[tuple[str | None, str | None], dict[str | None, Record]] = {}
    for record in records:
        by_case.setdefault((record.case, record.mode), {})[record.implementation] = record
    cases = tuple(_case(beside, beside[candidate]) for beside in by_case.values() if candidate in beside)
    verdict = _verdict(cases)
    sentence, exit_code = _VERDICTS[verdict]
    return Answer(
        verdict=verdict,
        sentence=sentence,
        exit_code=exit_code,
        suite=operator.suite,
        operator=operator.name,
        candidate=candidate,
        device=next((one.device_name for several in by_case.values() for one in several.values()), None),
        cases=cases,
    )


def _case(beside: dict[str | None, Record], record: Record) -> CaseAnswer:
    baseline, p50 = beside[BASELINE], p50_of(record)
    refused = baseline.status != Status.MEASURED and baseline.reason != NOTHING_RIGHT
    others = {known.estimate: one for one in beside.values() if one is not record and (known := p50_of(one))}
    best = others[min(others)] if others else None
    return CaseAnswer(
        code="refused" if refused else "right" if record.status == Status.MEASURED else record.status,
        reason=baseline.reason if refused else record.reason,
        latency=result_of(record).name if p50 else None,
        p50_ns=p50,
        over_baseline=speedup_over(record, baseline),
        over_compiled=speedup_over(record, beside.get("compiled")),
        over_best=speedup_over(record, best),
        best=best.implementation if best else None,
        registers=most(record, "registers"),
        spills=most(record, "spills"),
        sol_score=_sol_score(record, (baseline, beside.get("compiled"))),
        **{name: getattr(record, name) for name in _COPIED},
    )


def _sol_score(record: Record, usual: Iterable[Record | None]) -> float | None:
    """Return 1 / (1 + (T - T_roof) / (T_usual - T_roof))."""
    p50 = p50_of(record)
    usual_ns = min((known.estimate for one in usual if one and (known := p50_of(one))), default=None)
    if p50 is None or usual_ns is None or not record.roofline_fraction:
        return None
    roof_ns = p50.estimate * record.roofline_fraction
    if usual_ns <= roof_ns:
        return float(p50.estimate <= roof_ns)
    return 1 / (1 + (p50.estimate - roof_ns) / (usual_ns - roof_ns))


def _verdict(cases: Sequence[CaseAnswer]) -> str:
    codes = {case.code for case in cases}
    if "mismatched" in codes:
        return "wrong"
    if codes & {"failed", "timeout", "oom"}:
        return "failed"
    if codes != {"right"}:
        return "refused" if "refused" in codes else "skipped"
    speedups = [case.over_baseline for case in cases if case.over_baseline is not None]
    if len(speedups) < len(cases):
        return "right"
    if all(one.low > 1 for one in speedups):
        return "faster"
    return "slower" if all(one.high < 1 for one in speedups) else "mixed"
