"""The functions that measure: `run`, `measure`, `verify` and `try_`, with the settings, stages, locks and workers of the command line."""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pairbench.errors import IncompleteRunError, InterruptedRunError, SuiteError
from pairbench.interface.opened import Arguments, Cases, Opened, Targets, open_functions, open_targets, refuse_in_worker
from pairbench.interface.result import Result
from pairbench.interface.stored import Tries, Verifications
from pairbench.model.tolerance import Tolerance
from pairbench.own_folders import held_folder
from pairbench.workflow.setup import open_context, open_request

Words = str | Iterable[str] | None
"""A word, or several."""


def run(
    what: Targets = None,
    *,
    cases: Cases | None = None,
    device: str = "auto",
    implementations: Words = None,
    tier: Words = None,
    mode: Words = None,
    rounds: int | None = None,
    timeout: float | None = None,
    budget: str | None = None,
    store: str | Path | None = None,
    catalogue: bool = False,
    **settings: Any,
) -> Result:
    """Verify, time and profile pairs in processes of their own, and return the results. Ctrl-C ends it with the cases that were finished.

    Args:
        what: An operator, a suite file, a SELECT argument as on the command line, or several of these. An operator that was
            imported from a file is run from that file, as it is now; one of a notebook or script is sent as source.
        cases: Other cases for the operators, as `Operator(cases=)` takes them: `grid(n=[1024, 4096])`.
        device: `auto` (the first GPU, else the CPU), `cpu`, `cuda:N`, or `all`.
        implementations: Variants, or globs of variants, to take beside the baseline.
        tier: `smoke`, `real`, `headline`, `edge` or `all`.
        mode: `eager`, `compile`, `graph` or `all`.
        rounds: How many times every case is timed, each in a fresh process; 3 by default.
        timeout: Seconds for one implementation in one stage.
        budget: Wall time such as `10m`, as `pairbench run --budget`.
        store: A folder or URL to keep the run in; nothing is kept where not given, and `Result.save` is there for that.
        catalogue: Whether to take the pairs that come with pairbench where no file is named.
        settings: Further settings of `[tool.pairbench]`, such as `tf32`, `timer`, `target` or `case_seconds`.

    Raises:
        UsageError: an argument is wrong, or an operator cannot be sent to another process.
        IncompleteRunError: the run ended before its end; its `result` has what was measured.

    Example:
        >>> result = pairbench.run("my_ops.py", device="cpu", rounds=1)
        >>> result.frame[["case", "implementation", "call_p50_ns", "speedup"]]
        >>> result.plot(x="n", y="speedup")
    """
    refuse_in_worker("run")
    options = _options(tier=tier, mode=mode, rounds=rounds, timeout=timeout, budget=budget, **settings)
    with contextlib.ExitStack() as stack:
        kept = stack.enter_context(_kept(store))
        opened = stack.enter_context(open_targets(what, cases=cases, catalogue=catalogue, store=kept, **options))
        return _run(opened, device, implementations, store=None if store is None else kept)


def measure(
    functions: Mapping[str, Callable[..., Any]],
    args: Arguments = (),
    *,
    cases: Cases | None = None,
    name: str | None = None,
    tolerance: Tolerance | Mapping[str, Tolerance] | None = None,
    gradients: Sequence[str] = (),
    device: str | None = None,
    mode: Words = None,
    rounds: int | None = None,
    timeout: float | None = None,
    store: str | Path | None = None,
    **settings: Any,
) -> Result:
    """Measure bare functions side by side: verified against the first, timed interleaved, profiled.

    Args:
        functions: Functions by name: first the plain one, which becomes the baseline, then those that compute the same.
        args: Their arguments: a tensor, a list of arguments, or a dict by name. They are copied to the device, so no function
            sees another's. Or a function `inputs(make, ...)` of the axes of `cases`, as `Operator(inputs=)` takes it, which
            gives new values for each round; given values stay what they are.
        cases: The points that `inputs` is called with: `grid(n=[1024, 4096])`.
        name: The operator's name in tables; the first function's where not given.
        tolerance: How far outputs may differ; by the output's dtype where not given.
        gradients: Arguments, by name, of which the gradients are needed: forward, backward and both are then measured.
        device: As in `run`; where not given, the device that the tensors are on.
        mode, rounds, timeout, store, settings: As in `run`.

    Raises:
        UsageError: an argument is wrong, or it or a function cannot be sent to another process.
        IncompleteRunError: the run ended before its end; its `result` has what was measured.

    Example:
        >>> pairbench.measure({"plain": lambda x: x * torch.sigmoid(x), "mine": torch.nn.functional.silu}, torch.randn(4096))
    """
    refuse_in_worker("measure")
    options = _options(mode=mode, rounds=rounds, timeout=timeout, **settings)
    with contextlib.ExitStack() as stack:
        kept = stack.enter_context(_kept(store))
        declared: dict[str, Any] = {"cases": cases, "name": name, "tolerance": tolerance, "gradients": gradients}
        opened, where = stack.enter_context(open_functions(functions, args, **declared, store=kept, **options))
        return _run(opened, device or where, None, store=None if store is None else kept)


def verify(
    what: Targets = None,
    *,
    cases: Cases | None = None,
    device: str = "auto",
    implementations: Words = None,
    tier: Words = None,
    mode: Words = None,
    impostors: bool = False,
    timeout: float | None = None,
    catalogue: bool = False,
    **settings: Any,
) -> Verifications:
    """Verify variants against their baselines and a float64 oracle, and time nothing. Edge cases are included.

    Args:
        what, cases, device, implementations, tier, mode, timeout, catalogue, settings: As in `run`.
        impostors: Whether to audit the tolerances, too: every deliberately wrong implementation must be rejected.

    Raises:
        UsageError: an argument is wrong.

    Example:
        >>> assert pairbench.verify("my_ops.py", impostors=True).ok
    """
    refuse_in_worker("verify")
    from pairbench.workflow.devices import verify_devices

    options = _options(tier=tier, mode=mode, timeout=timeout, **settings)
    with (
        open_targets(what, cases=cases, catalogue=catalogue, **options) as opened,
        open_request(opened.config, opened.select, device, _words(implementations)) as request,
    ):
        survey = request.chosen.survey
        if survey.broken and not survey.operators:
            raise SuiteError("; ".join(suite.reason for suite in survey.broken))
        found = verify_devices(request, impostors=impostors)
    return Verifications(
        rows=tuple(found.rows()),
        impostors=tuple(found.impostor_rows()),
        ok=not (found.bad or survey.broken or request.context.interrupted.is_set()),
        lines=(found.statuses(), *(suite.reason for suite in survey.broken)),
    )


def try_(
    what: Targets = None,
    *,
    cases: Cases | None = None,
    device: str = "auto",
    implementations: Words = None,
    tier: Words = None,
    mode: Words = None,
    all_cases: bool = False,
    timeout: float | None = None,
    store: str | Path | None = None,
    catalogue: bool = False,
    **settings: Any,
) -> Tries:
    """Take a quick look: right or wrong first, then one round of timing, beside the last try. Nothing is stored.

    Args:
        what, cases, implementations, tier, mode, timeout, catalogue, settings: As in `run`.
        device: As in `run`, but a single device.
        all_cases: Whether to take all selected cases; else one of each operator.
        store: The store whose newest run to compare with; that of `[tool.pairbench]` where not given.

    Raises:
        UsageError: an argument is wrong.
        KeyboardInterrupt: the user interrupted.

    Example:
        >>> print(pairbench.try_(my_operator, implementations="triton"))
    """
    refuse_in_worker("try_")
    options = _options(tier=tier, mode=mode, timeout=timeout, store=None if store is None else str(store), **settings)
    with open_targets(what, cases=cases, catalogue=catalogue, **options) as opened, contextlib.ExitStack() as stack:
        from pairbench.features.attempt.attempts import Attempts, WantedTry
        from pairbench.workflow.progress import StatusListener
        from pairbench.workflow.setup import ask

        files = ask(opened.config, opened.select).files
        context = stack.enter_context(open_context(opened.config, files, quick=True))
        select, names = tuple(opened.select), _words(implementations)
        wanted = WantedTry(select=select, implementations=names, device=device, every_case=all_cases)
        status = StatusListener()
        stack.callback(status.clear)
        attempts = Attempts(opened.config, context, wanted, status)
        stack.callback(attempts.close)
        try:
            return Tries(attempt=attempts.once())
        except InterruptedRunError:
            raise KeyboardInterrupt from None


def _run(opened: Opened, device: str, implementations: Words, *, store: str | None) -> Result:
    began = time.monotonic()
    with open_request(opened.config, opened.select, device, _words(implementations)) as request:
        from pairbench.report.rows import ordered
        from pairbench.store.reader import read_samples
        from pairbench.workflow.record import record_run

        done = record_run(request, began=began)
    broken = [suite.reason for suite in request.chosen.survey.broken]
    samples = read_samples(opened.config.store, done.run_id).value if done.records else ()
    result = Result(
        records=tuple(ordered(done.records)),
        raw_samples=samples,
        store=store,
        interrupted=done.interrupted and done.error is None,
        lines=(*done.closing_lines(None if store is None else opened.config.shown_store), *broken),
        source=opened.text,
    )
    if done.error is not None:
        problem = f"{done.error}; what was measured until then is this error's `result`"
        raise IncompleteRunError(problem, result) from done.error
    if done.kept is not None:
        raise IncompleteRunError(f"{'; '.join(done.kept.lines())}; this error's `result` has all of it", result)
    return result


@contextlib.contextmanager
def _kept(store: str | Path | None) -> Iterator[str]:
    """Yield the store of a run: the given one, or a folder that is removed at the end of the call."""
    if store is not None:
        yield str(store)
        return
    with held_folder() as folder:
        yield str(folder)


def _options(**options: Any) -> dict[str, Any]:
    words = {name: list(_words(options[name])) for name in ("tier", "mode") if options.get(name) is not None}
    return options | words


def _words(words: Words) -> tuple[str, ...]:
    return () if words is None else (words,) if isinstance(words, str) else tuple(words)
