"""`pairbench capture`: run a program under the recorder, write the suite of its calls, and check that their latencies add up to its time."""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from pairbench.errors import UsageError
from pairbench.model.outcome import Status
from pairbench.model.plan import BASELINE, OperatorDescription
from pairbench.model.record import Record, p50_of
from pairbench.own_folders import held_folder
from pairbench.suite.captured import Seen, together

_STDERR = 2  # its descriptor
_ENDING_S = 60.0  # how long an interrupted program has to end and to write what was seen


def record_program(
    command: Sequence[str], *, whole: Sequence[str], profiles: bool, quiet: bool, notify: Callable[[str], object]
) -> tuple[Seen, int]:
    """Run a program, on a GPU twice, and return what it called with its exit code, 130 if it was interrupted.

    The second run is under the profiler, which says what each call takes of the device's time and slows the program down. `quiet` has the program
    write to stderr what it writes to stdout.

    Raises:
        UsageError: the program cannot be started, or none of its processes has called anything of torch.
    """
    seen, code = _run(command, whole, quiet)
    if not seen.calls:
        how = f"`{command[0]}` ended with exit code {code}"
        why = "no Python process of it, started without -I, -E or -S, has called a module or function of torch"
        raise UsageError(f"nothing was captured: {how}, and {why}")
    if seen.device and profiles and code == 0:
        notify("the program runs once more, under the profiler, for the device's time of each call")
        profiled, again = _run(command, whole, quiet, profiles="modules" if seen.has_modules else "start")
        if profiled.busy_ns and again == 0:
            return seen.timed_by(profiled), code
        notify(
            f"the run under the profiler told no times of the device (exit code {again}); shares are of the host's time"
        )
    return seen, code


def _run(command: Sequence[str], whole: Sequence[str], quiet: bool, *, profiles: str = "") -> tuple[Seen, int]:
    with held_folder() as folder:
        package = str(Path(__file__).resolve().parents[2])
        hook = f"{package}/pairbench/execute/capture_hook"
        given = {"PAIRBENCH_CAPTURE": str(folder), "PAIRBENCH_CAPTURE_WHOLE": json.dumps([*whole])}
        given["PAIRBENCH_CAPTURE_PROFILE"] = profiles
        path = os.pathsep.join(filter(None, [hook, os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, **given, "PAIRBENCH_CAPTURE_PACKAGE": package, "PYTHONPATH": path}
        try:
            program = subprocess.Popen(command, env=environment, stdout=_STDERR if quiet else None)
        except OSError as error:
            raise UsageError(f"`{command[0]}` cannot be started: {error.strerror}") from error
        try:
            code = program.wait()
        except (SystemExit, KeyboardInterrupt):  # on a signal, which at a terminal the program has as well
            _end(program)
            code = 130
        finally:
            program.kill()
        parts = [Seen.from_json(part.read_text()) for part in sorted(folder.glob("*.json"))]
    return together(parts), code


def _end(program: "subprocess.Popen[bytes]") -> None:
    """Wait for a program to end, interrupt it if it does not, and wait for it to write what was seen."""
    for seconds in (1.0, _ENDING_S):
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.wait(seconds)
            return
        program.send_signal(signal.SIGINT)


def checked(
    records: Sequence[Record], operators: Sequence[OperatorDescription], seen: Seen, share: float, steps: float
) -> tuple[bool, list[str]]:
    """Return whether a suite's baselines add up to the time of the captured calls within 10 %, and sentences on what is missing.

    `share` is that of the suite's operators in the program's time.
    """
    weights = {case.key: case.weight for one in operators for case in one.cases if case.weight}
    latencies = {
        record.case: latency.estimate
        for record in records
        if record.implementation == BASELINE and record.status == Status.MEASURED and (latency := p50_of(record))
    }
    sum_ms = sum(weight * latencies.get(key, 0.0) for key, weight in weights.items()) / 1e6
    whole_ms, kind = seen.total_ns / steps / 1e6, "device" if seen.busy_ns else "host"
    ratio = sum_ms / (share * whole_ms)
    spent = f"{share * whole_ms:,.3f} ms of {kind} time that the program spends in these calls"
    lines = [
        f"Check: the baselines take {sum_ms:,.3f} ms by weight, {ratio:.1%} of the {spent}",
        f"  of the program's {whole_ms:,.3f} ms, {1 - share:.1%} are no calls of these operators",
    ]
    if missing := [key for key in weights if key not in latencies]:
        lines.append(f"  without a latency: {len(missing)} of {len(weights)} cases, such as {missing[0]}")
    cold = "a latency is taken with a cold cache, where the program's calls may find their inputs in it"
    autocast = "under autocast each call casts its weights, which the program does once"
    slowed = "cases without a latency, and what slows the program's calls, as other work at the same time"
    if not 0.9 <= ratio <= 1.1:
        lines.append(f"  more than 10 % {f'above: {cold}; {autocast}' if ratio > 1 else f'below: {slowed}'}")
    if seen.busy_ns and seen.busy_ns < 0.9 * seen.wall_ns:
        lines.append(
            f"  the device worked for {seen.busy_ns / seen.wall_ns:.0%} of the program's {seen.wall_ns / 1e9:,.2f} s: the host limits it"
        )
    return 0.9 <= ratio <= 1.1, lines
