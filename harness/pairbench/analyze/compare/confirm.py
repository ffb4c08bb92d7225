"""Second measurements: a regression counts where it is seen again."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pairbench.analyze.compare.exact import METRICS, judge_exact, number, worsened
from pairbench.analyze.compare.reasons import percent
from pairbench.analyze.compare.relative import mean_relative
from pairbench.analyze.compare.rounds import is_median, mean_log, usable
from pairbench.model.comparison import Change, GateOutcome, Judgement
from pairbench.model.policy import DEFAULT, Policy
from pairbench.model.record import Record
from pairbench.model.series import Series


def suspects(changes: Iterable[Change]) -> tuple[Series, ...]:
    """Return the series to measure again before anything fails.

    Their controls have to be measured with them, for only together they tell the code from the machine.
    """
    return tuple(
        change.series
        for change in changes
        if change.outcome in (GateOutcome.REGRESSION, GateOutcome.FAILED)
        and change.series.case
        and change.confirmed is None
    )


def again(current: Sequence[Record]) -> list[Record]:
    """Return the records that measured suspects of the other current runs again."""
    runs = {record.run_id for record in current}
    return [record for record in current if record.confirms in runs]


def confirm(
    judgement: Judgement,
    reference: Sequence[Record],
    current: Sequence[Record],
    policy: Policy = DEFAULT,
    *,
    controls: Sequence[Record] = (),
) -> tuple[Judgement, bool | None]:
    """Return a judgement with what the second measurement says of it, and whether that showed a worsening again.

    Args:
        judgement: On all data. Only a regression can become anything else by this.
        reference: The records it was compared with.
        current: All current records, those that measured suspects again among them; without such there is no news.
        policy: The thresholds.
        controls: The records of its control, by which a change relative to the baseline is judged.
    """
    second = [record for record in again(current) if usable(record)]
    if not second:
        return judgement, None
    if judgement.verdict is not None:
        told = _latency(judgement, reference, current, second, policy, controls)
    elif judgement.metric in METRICS and judgement.outcome is GateOutcome.REGRESSION:
        told = _count(judgement, reference[-1], second[-1], policy)
    else:
        return judgement, None
    if not told:
        return judgement, None if told is None else True
    outcome = GateOutcome.UNDECIDED if judgement.outcome is GateOutcome.REGRESSION else judgement.outcome
    return replace(judgement, outcome=outcome, reason=f"{judgement.reason}; {told}"), False


def _latency(
    judgement: Judgement,
    reference: Sequence[Record],
    current: Sequence[Record],
    second: Sequence[Record],
    policy: Policy,
    controls: Sequence[Record],
) -> str | None:
    """Return in words that a slow-down was not seen again; "" where it was, None where there was none."""

    def level(records: Sequence[Record]) -> float:
        metric = judgement.metric
        return mean_relative(metric, records, controls) if judgement.relative_to_baseline else mean_log(metric, records)

    seen = level(second) - level(reference)
    if judgement.outcome is GateOutcome.REGRESSION and judgement.change is not None:
        moved = math.log(judgement.change.estimate)
    elif not is_median(judgement.metric):
        return None
    else:
        # Together they may say nothing any more; what made it a suspect was the first measurement alone.
        moved = level([record for record in current if record not in second]) - level(reference)
        if not moved >= policy.least_estimate * math.log1p(judgement.minimum_effect or policy.minimum_effect):
            return None
    if math.isnan(seen):
        return None
    if seen >= policy.confirmed_part * moved:
        return "" if judgement.outcome is GateOutcome.REGRESSION else None
    return f"not seen again when measured again ({percent(math.exp(seen))})"


def _count(judgement: Judgement, reference: Record, second: Record, policy: Policy) -> str:
    """Return in words that a higher count was not seen again; "" where it was."""
    repeated = any(item.metric == judgement.metric for item in worsened(judge_exact(reference, second, policy)))
    value = number(second, judgement.metric)
    # Peak memory need not be the same to the byte.
    if repeated and (value == judgement.current or judgement.metric == "peak_bytes"):
        return ""
    return f"not seen again when measured again ({'not counted' if value is None else f'{value:.0f}'})"
