"""`run --confirm`: what looks worse than the reference is measured again before anything fails."""

from dataclasses import dataclass, replace
from typing import Any

from pairbench.analyze.compare.runs import suspects
from pairbench.plan import Selection
from pairbench.report.comparison import document, render_comparison
from pairbench.workflow.comparer import ComparedRuns, Comparer
from pairbench.workflow.record import DoneRun, record_run
from pairbench.workflow.selectors import AUTO
from pairbench.workflow.setup import Request

_NAMED = 5


@dataclass(frozen=True, kw_only=True)
class Confirmed:
    """The result of comparing a run with earlier ones."""

    judged: ComparedRuns  # the comparison after the suspects were measured again, by the run `again`
    again: DoneRun | None = None

    @property
    def exit_code(self) -> int:
        interrupted = self.again is not None and self.again.interrupted
        return 130 if interrupted else self.judged.exit_code()

    def render(self, output: str) -> str:
        """Return the comparison as a table or Markdown."""
        lines = [f"Measured again in run {self.again.run_id}"] if self.again else []
        return "\n\n".join([*lines, render_comparison(self.judged.comparison, output)])

    def plain(self) -> dict[str, Any]:
        again = self.again.run_id if self.again else None
        return {"confirming_run_id": again, "comparison": document(self.judged.comparison)}


def confirm_run(request: Request, run_id: str, *, reference: str = AUTO, quiet_only: bool = False) -> Confirmed:
    """Compare a run with a reference, and measure series that look worse again, in whole cases."""
    # A case is measured with its baseline and all variants of the run: only together they tell the code from the machine.

    def judged_now() -> ComparedRuns:
        return Comparer.open(request.config, quiet_only=quiet_only).compare(reference, run_id)

    judged = judged_now()
    worse = suspects(judged.comparison.changes)
    names = {series.device_name for series in worse}
    devices = tuple(device for device in request.devices if device.name in names)
    if not devices:
        return Confirmed(judged=judged)
    named = ", ".join(series.name for series in worse[:_NAMED])
    more = f" and {len(worse) - _NAMED} more" if len(worse) > _NAMED else ""
    request.progress.notify(
        f"pairbench: {len(worse)} look worse than the reference and are measured again: {named}{more}"
    )
    settings = request.context.settings
    modes = tuple(mode for mode in settings.modes if mode in {series.mode for series in worse})
    cases = dict.fromkeys((series.suite, series.case) for series in worse)
    chosen = replace(
        request.chosen,
        survey=replace(request.chosen.survey, broken=()),
        narrowed=None,
        selections=tuple(Selection(text=f"{suite}::{case}", suite=suite, pattern=case) for suite, case in cases),
    )
    context = replace(request.context, settings=replace(settings, modes=modes))
    again = record_run(replace(request, context=context, chosen=chosen, devices=devices), confirms=run_id)
    # What was measured again lies in the store now, which is opened once more for it.
    return Confirmed(judged=judged_now(), again=again)
