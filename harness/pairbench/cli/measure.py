"""The verbs that load suites and measure them, `doctor`, `list`, `verify`, `try`, `run` and `calibrate`, or look into a call."""

import contextlib
import os
import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pairbench.cli.options import File, Given, Text, Texts, argument, option, verb
from pairbench.cli.say import put, put_rows, remark, report_problems
from pairbench.errors import PairbenchError, SelectionError, UsageError
from pairbench.model.breakdown import Breakdown, NotInspected
from pairbench.model.plan import BASELINE
from pairbench.own_folders import held_folder
from pairbench.plan import taken
from pairbench.workflow.progress import StatusListener
from pairbench.workflow.setup import ask, choose, open_context, open_request

if TYPE_CHECKING:
    from pairbench.features.attempt.attempts import Attempt, Tried
    from pairbench.workflow.comparer import Confirmed
    from pairbench.workflow.record import DoneRun
    from pairbench.workflow.setup import Chosen

# A second's worth of importing, done while workers load torch.
_MEANWHILE = ("pairbench.workflow.record", "pyarrow.parquet", "scipy.special")


@verb("device store output")
def doctor(given: Given) -> None:
    """Show what this machine can measure. Also what is missing, and how to fix it.

    Example: pairbench doctor --device all
    """
    from pairbench.workflow.devices import examine

    put_rows("doctor", examine(given.config, given.device), given.output)


@verb("select catalogue implementation against stored_tier output")
def list_(given: Given) -> int | None:
    """List operators with their implementations and cases.

    Example: pairbench list suites/depthwise.py
    """
    with open_context(given.config, describes=True) as context:
        chosen = choose(given.config, context, given.select)
    rows = []
    for operator in chosen.operators():
        names = [*taken(operator, given.implementation)]
        for case in operator.cases if names else ():
            if given.wanted.takes(None, None, case.tier):
                row = {"suite": operator.suite, "case": case.key, "tier": case.tier, "implementations": names}
                impostors = [item.name for item in operator.impostors]
                rows.append({**row, "impostors": impostors, "source": operator.source})
    broken = chosen.survey.broken
    remark(*(suite.reason for suite in broken), *chosen.left_out())
    asked = [*given.select, *(f"-i {name}" for name in given.implementation)]
    asked += [f"--tier {name}" for name in given.wanted.tiers]
    if not rows and asked and not broken:
        nothing = f"{' '.join(asked)!r} selects nothing"
        raise SelectionError(f"{nothing}; `pairbench list` without arguments shows everything")
    put_rows("cases", rows, given.output)
    return 2 if broken else 0


@verb(
    "select catalogue implementation against device tier mode impostors tf32 timeout output",
    impostors=option("Audit tolerances too: each impostor, wrong on purpose, must be rejected.", "--impostors"),
)
def verify(given: Given, impostors: bool = False) -> int | None:
    """Verify every variant against its baseline, and time nothing. Edge cases are included.

    Triton kernels run through Triton's interpreter where there is no GPU.

    Example: pairbench verify suites/conv.py --impostors
    """
    from pairbench.report.render import to_json
    from pairbench.report.rows import MEANINGS
    from pairbench.workflow.devices import SHOWN, verify_devices

    with open_request(given.config, given.select, given.device, given.implementation) as request:
        verified = verify_devices(request, impostors=impostors)
    broken, rows = request.chosen.survey.broken, verified.rows()
    remark(*(suite.reason for suite in broken), *request.chosen.left_out())
    if given.output == "json":
        document = {"verifications": rows, "broken_suites": broken}
        put(to_json({**document, "impostors": verified.impostor_rows()} if impostors else document), nl=False)
    else:
        put_rows("verifications", [{name: row[name] for name in SHOWN} for row in rows], given.output)
        if any(row["oracle_ratio"] is not None for row in rows):
            put(f"oracle_ratio: {MEANINGS['oracle ratio']}")
        if impostors:
            put_rows("impostors", verified.impostor_summary(), given.output)
        put(verified.statuses())
    return 2 if broken else 130 if request.context.interrupted.is_set() else int(verified.bad)


@verb(
    "select catalogue implementation against device tier mode all_cases watch tf32 timeout store output",
    all_cases=option(
        "Take all selected cases. Default: those that SELECT names by their keys, and of each other operator one: the first "
        "real one on a GPU, the first smoke one on a CPU.",
        "--all-cases",
    ),
    watch=option("Try again whenever a file of the suites changes, until Ctrl-C; JSON by lines.", "--watch", "-w"),
)
def try_(given: Given, all_cases: bool = False, watch: bool = False) -> int | None:
    """Take a quick look at what is being edited: right or wrong first, then one round of timing.

    It stops at the first implementation that is wrong, and shows where. Latencies stand beside those of the last try and of the newest
    stored run. One process does everything and judges itself, nothing is stored, and no verdict is given: that is for run and compare.

    Example: pairbench try my_ops.py -i triton --watch
    """
    selected = (given.select, given.implementation, given.device)
    with (
        open_context(given.config, ask(given.config, given.select).files, quick=True) as context,
        contextlib.closing(_TryPage(given.output, watched=watch)) as page,
    ):
        # Only now, for it takes half a second, and the server that loads torch is under way.
        from pairbench.features.attempt.attempts import Attempts

        with contextlib.closing(Attempts(given.config, context, page, *selected, every_case=all_cases)) as attempts:
            if watch:
                attempts.watch()
            return attempts.once().exit_code


class _TryPage(StatusListener):
    """Prints tries: tables to stdout, progress to stderr."""

    def __init__(self, output: str, *, watched: bool) -> None:
        super().__init__()
        self._output, self._watched, self._finished = output, watched, 0

    def case(self, tried: "tuple[Tried, ...]") -> None:
        from pairbench.features.attempt.words import case_lines

        self.close()
        if self._output == "table":
            put("\n".join(case_lines(tried)))

    def finish(self, attempt: "Attempt") -> None:
        """Print the end of a try; the first end also says what the figures are, and what was left out."""
        from pairbench.features.attempt.words import LABEL, as_markdown, as_plain, closing_lines
        from pairbench.report.render import to_json

        self.close()
        for suite in attempt.broken:
            self.notify(f"pairbench: {suite.reason}")
        if self._output == "json":
            put(to_json(as_plain(attempt), lines=self._watched), nl=False)
        elif self._output == "markdown":
            put(as_markdown(attempt), nl=False)
        elif attempt.cases:
            lines = closing_lines(attempt, with_left_out=not self._finished)
            for line in lines if self._finished else [*lines, LABEL]:
                put(line)
            self._finished += 1


@verb(
    "select catalogue implementation against device tier mode rounds timer tf32 timeout confirm skip_existing budget changed_since store no_store output",
    confirm=option(
        "Afterwards compare with the newest comparable runs of the default branch, measure suspected regressions again, "
        "and fail only for those that are confirmed.",
        "--confirm",
    ),
    skip_existing=option(
        "Leave out the cases that the store has already: same inputs, code, device model and environment, and as many "
        "rounds. Goes on where an interrupted run stopped.",
        "--skip-existing",
    ),
    changed_since=option(
        "Measure only the operators that differ from those of a commit, branch or tag: their definition, an "
        "implementation, or code of the suites that they reach, uncommitted changes included. A few untouched ones are measured "
        "beside them, to tell whether the machine moved; the others are named and do not count as missing. A change of pairbench, "
        "of pyproject.toml or of the environment is no change of an operator.",
        metavar="COMMIT",
    ),
    no_store=option("Show the results and keep nothing, so that no later command sees this run.", "--no-store"),
)
def run(
    given: Given, confirm: bool = False, skip_existing: bool = False, changed_since: Text = None, no_store: bool = False
) -> int | None:
    """Verify, time and profile every pair, and store the results.

    Example: pairbench run my_ops.py --device cuda:0 --rounds 5
    """
    began = _process_began()
    if no_store and (given.store or confirm or skip_existing):
        alone = "it goes with none of --store, --confirm, --skip-existing"
        raise UsageError(f"--no-store keeps nothing and reads nothing: {alone}")
    confirmed, config = None, given.config
    with contextlib.ExitStack() as stack:
        if no_store:
            config = replace(config, store=str(stack.enter_context(held_folder())))
        request = stack.enter_context(
            open_request(config, given.select, given.device, given.implementation, meanwhile=_MEANWHILE)
        )
        if changed_since is not None:
            from pairbench.features.since import changed_since as narrowed_to_changed

            request = narrowed_to_changed(request, changed_since)
        from pairbench.workflow.record import record_run

        done = record_run(request, skip_existing=skip_existing, began=began)
        error = done.error
        if confirm and done.records and not (done.interrupted or done.kept or error):
            from pairbench.workflow.comparer import confirm_run

            paused = time.monotonic()
            try:
                confirmed = confirm_run(request, done.run_id)
            except PairbenchError as failed:
                error = failed
            began += time.monotonic() - paused  # the time of a run is not that of measuring suspects again
    # Whatever went wrong, what was measured is shown first.
    store = None if no_store else config.shown_store
    _show_run(done, confirmed, request.chosen, output=given.output, store=store, began=began)
    remark(*(suite.reason for suite in request.chosen.survey.broken), *request.chosen.left_out())
    if done.kept and confirm:
        remark("nothing was judged, for the run is not in the store as a whole")
    if confirmed:
        report_problems(confirmed.judged)
        error = error or (confirmed.again.error if confirmed.again else None)
    if error is not None:
        raise error
    return max(done.exit_code, confirmed.exit_code if confirmed else 0)


def _process_began() -> float:
    """Return when this process was started, by the monotonic clock, in seconds; now where the system does not say, as on macOS."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return time.monotonic()
    return time.monotonic() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")


def _show_run(
    done: "DoneRun", confirmed: "Confirmed | None", chosen: "Chosen", *, output: str, store: str | None, began: float
) -> None:
    from pairbench.model.comparison import GateOutcome
    from pairbench.report.render import to_json
    from pairbench.report.rows import answer, believed, expanded, fast_p, ordered, precision_remark, render
    from pairbench.report.weighted import weighted, weighted_lines
    from pairbench.suite.modules import PROBLEM

    text = "" if output == "json" else render(believed(done.records), output)
    done.wall_s, narrowed = time.monotonic() - began, chosen.narrowed
    shares = fast_p(done.records, {one.suite for one in chosen.survey.operators if one.source.startswith(PROBLEM)})
    weighed = weighted(done.records, chosen.survey.operators)
    if output == "json":
        document = {
            "run_id": done.run_id,
            "store": store,
            "summary": done.summary(),
            "records": [expanded(record) for record in ordered(done.records)],
            "notes": precision_remark(done.records),
            **({"fast_p": shares} if shares else {}),
            **({"weighted": weighed} if weighed else {}),
            **({"since": narrowed.plain()} if narrowed else {}),
            **(confirmed.plain() if confirmed else {}),
        }
        put(to_json(document), nl=False)
        remark(*(done.kept.lines() if done.kept else ()))
        return
    put(text, nl=False)
    for line in weighted_lines(weighed):
        put(line)
    if shares:
        put_rows("fast_p: share of cases that are right, and more than p times as fast", shares, output)
    for line in narrowed.lines() if narrowed else ():
        put(f"\n{line}", nl=False)
    changes = confirmed.judged.comparison.changes if confirmed else ()
    worse = [f"{one.series.name}: {one.reason}" for one in changes if one.outcome == GateOutcome.REGRESSION]
    if confirmed:
        put(f"\n{confirmed.render(output)}", nl=False)
    worse += [suite.reason for suite in chosen.survey.broken]
    put("\n" + "\n".join([*done.closing_lines(store), *answer(done.records, worse)]))


@verb(
    "command target steps whole host check force device rounds store output",
    command=argument("The program with its arguments, behind `--`.", metavar="COMMAND"),
    target=option("The suite to write.", "--output", "-o", metavar="FILE.py"),
    steps=option("The number of steps that the program makes: weights are calls a step. Default: 1.", min=1),
    whole=option(
        "A class whose modules are one operator, although they call modules themselves; repeatable. Default: modules without parts.",
        metavar="CLASS",
    ),
    host=option("Leave out the second run under the profiler: shares are of the host's time.", "--host-time"),
    check=option(
        "Measure the baselines afterwards, and say how near their sum comes to the program's time.", "--check"
    ),
    force=option("Replace FILE where it exists.", "--force"),
)
def capture(
    given: Given,
    command: list[str],
    target: File = None,
    steps: int = 1,
    whole: Texts = None,
    host: bool = False,
    check: bool = False,
    force: bool = False,
) -> int | None:
    """Run a program, and write the modules and functions of torch that it calls as a suite. A case has the shapes of a call, and its count as `weight`.

    The program's results are the same as without. On a GPU it runs twice, the second time under the profiler. Exit code: 1 where the program
    failed, or --check finds the sum further than 10 % from the program's time; what the program had called is written all the same.

    Example: pairbench capture -o suites/llama.py --steps 10 -- python generate.py
    """
    from pairbench.cli.say import write
    from pairbench.features.capture import checked, record_program
    from pairbench.report.render import to_json
    from pairbench.suite.captured_text import written

    if target is None or target.suffix != ".py":
        raise UsageError(
            f"--output is {str(target or '')!r}, expected the name of the suite to write, such as suites/llama.py"
        )
    if target.exists() and not force:
        raise UsageError(f"{target} is there already and may hold changes of yours; --force replaces it")
    seen, code = record_program(
        command, whole=whole or [], profiles=not host, quiet=given.output == "json", notify=remark
    )
    suite = written(seen, target, steps=steps, program=shlex.join(command))
    write(target, suite.text, make_folder=True)
    if code:
        remark(f"the program ended with exit code {code}; {target} has what it had called until then")
    rows = [{"operator": name, "share": f"{share:.1%}"} for name, share in suite.operators]
    if given.output != "json":
        put_rows(
            f"captured in {target}", rows, given.output, empty="Nothing that was captured can be written as an operator"
        )
    ok, lines = True, [*suite.rest]
    if check and rows:
        from pairbench.workflow.record import record_run

        with open_request(given.config, [str(target)], given.device, (BASELINE,)) as request:
            done = record_run(request)
        share = sum(share for _, share in suite.operators)
        ok, sentences = checked(done.records, request.chosen.survey.operators, seen, share, steps)
        lines += sentences
    if given.output == "json":
        put(to_json({"suite": str(target), "operators": rows, "notes": lines, "exit_code": code}), nl=False)
    else:
        put("\n".join(lines))
    return 130 if code == 130 else int(bool(code) or not ok)


@verb(
    "problem candidate catalogue device tier mode rounds tf32 timeout budget isolated serve output",
    settings={"tier": ["smoke"]},
    problem=argument("A problem of another corpus, or file::operator of a suite."),
    candidate=argument("A candidate's file, or the name of a variant of the operator."),
    tier=option("smoke, real, headline, edge or all; repeatable. Default: smoke."),
    isolated=option(
        "Keep the candidate from the network, and from all files but those of this command, as far as the kernel can."
    ),
    serve=option("Answer programs that connect to a Unix socket, until Ctrl-C.", metavar="unix:PATH"),
)
def judge(
    given: Given, problem: Text = None, candidate: Text = None, isolated: bool = False, serve: Text = None
) -> int | None:
    """Judge one candidate for one problem. Whether it is right, how fast it is, and what it costs, with a verdict in one word.

    Nothing is stored. The JSON document is for programs that write kernels: its form has a version, see docs/problems.md. With --serve,
    requests with a problem and a candidate come over a Unix socket, and torch stays loaded between them.

    Example: pairbench judge KernelBench/level1/19_ReLU.py my_relu.py --format json
    """
    from pairbench.execute.isolation import FILES, NETWORK, can_be_kept_from
    from pairbench.features import judge as feature
    from pairbench.report.render import to_json

    if missing := {NETWORK, FILES}.difference(can_be_kept_from()) if isolated else ():
        remark(f"--isolated: this kernel cannot keep a candidate from {missing.pop()}; the JSON document says so, too")
    config = replace(given.config, settings=replace(given.config.settings, isolated=isolated))
    if serve and not problem:
        feature.serve(config, given.device, serve, remark)
        return None
    if serve or not problem or not candidate:
        raise UsageError("judge takes a PROBLEM and a CANDIDATE, or --serve unix:PATH")
    found = feature.judge(config, given.device, problem, candidate, meanwhile=_MEANWHILE)
    put(to_json(found) if given.output == "json" else "\n".join(found.lines()), nl=given.output != "json")
    return found.exit_code


@verb(
    "select catalogue implementation runs device tier mode rounds tf32 timeout store output",
    runs=option("Runs to make and to compare with one another."),
    rounds=option("Fresh worker processes in each run. Default: 3."),
)
def calibrate(given: Given, runs: int = 5) -> int | None:
    """Measure this machine against itself. How far latencies move when nothing changed, and how many alarms that raises.

    The runs are ordinary ones and stay in the store. What they show is kept beside them, for later comparisons on this device model.

    Example: pairbench calibrate suites/conv.py --device cuda:0 --runs 5
    """
    from pairbench.features.levels import calibrate_machine, render_calibrations

    if runs < 2:
        raise UsageError(f"--runs is {runs}, expected at least 2: one run cannot be compared with itself")
    with open_request(given.config, given.select, given.device, given.implementation) as request:
        calibrations, exit_code, kept = calibrate_machine(request, runs=runs)
    if calibrations:
        put(render_calibrations(calibrations, given.output), nl=False)
    remark(*(kept.lines() if kept else ()))
    return exit_code


@verb(
    "operator case catalogue implementation mode device expand trace keep tf32 timeout store output",
    settings={"tier": ["all"]},
    implementation=option("baseline, a variant, or all; repeatable. Default: baseline.", "--implementation", "-i"),
    mode=option("eager or graph.", "--mode"),
    expand=option("Show each module of a list by itself, instead of one line for modules of one kind.", "--expand"),
    trace=option("Also write the profiler's trace, for chrome://tracing or Perfetto.", metavar="FILE.json"),
    keep=option("Also store it, so that the dashboard shows it.", "--keep"),
)
def breakdown(
    given: Given,
    implementation: Texts = None,
    mode: str = "eager",
    expand: bool = False,
    trace: File = None,
    keep: bool = False,
) -> int | None:
    """Show where one call spends its time. By module, kind of work and kernel, and by source line for copies, casts and syncs.

    The call runs under a profiler, which slows it down: read the shares, and take no time here for a latency. Times are
    those of ATen operators on a CPU, and of kernels on a GPU.

    Example: pairbench breakdown suites/conv.py::causal_conv3d --case dtype=bfloat16 -i all --trace conv.json
    """
    from pairbench.features.breakdown.breakdown import break_down, render_breakdown

    if mode not in ("eager", "graph"):
        raise UsageError(f"--mode {mode!r} cannot be broken down, expected one of eager, graph")
    place = (given.config, given.operator, given.case, given.device)
    found, kept = break_down(*place, implementation or ["baseline"], trace=trace, keep=keep)
    put(render_breakdown(found, given.output, expand=expand), nl=False)
    if kept:
        remark(f"kept as {kept}")
    if any(isinstance(part, NotInspected) and part.bad for part in found.parts):
        return 1
    return 0 if any(isinstance(part, Breakdown) for part in found.parts) else 2


@verb(
    "operator variant case catalogue device everything tf32 timeout output",
    settings={"tier": ["all"], "mode": ["eager"]},
    variant=option("The variant to compare with the baseline.", "--variant", "-v", "--implementation", "-i"),
    everything=option("Show every call of every module, however many there are.", "--all"),
)
def diverge(given: Given, variant: str, everything: bool = False) -> int | None:
    """Find the first module whose output is out of tolerance. Also show how errors grow from module to module.

    Baseline and variant run on the same inputs. The outputs of modules with the same name are compared call by call, and both
    with the baseline in float64. Exit code: 1 where the operator's output is out of tolerance, or a module's output is and is
    clearly further from float64 than the baseline's.

    Example: pairbench diverge my_model.py::decoder --variant fused --case dtype=bfloat16
    """
    from pairbench.features.diverge import find_divergence, render_divergence

    whole = find_divergence(given.config, given.operator, given.case, given.device, variant)
    found = whole.result
    if isinstance(found, NotInspected) and given.output != "json":
        remark(found.reason)
    else:
        put(render_divergence(whole, given.output, everything=everything), nl=False)
    if isinstance(found, NotInspected):
        return 1 if found.bad else 2
    return int(found.bad) if found.layers else 2
