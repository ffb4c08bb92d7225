"""Current runs against reference runs: one change for every series that either side has, each with its reason."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from pairbench.analyze.compare.change import Control, Evidence, change_of
from pairbench.analyze.compare.latency import judge_latencies, unjudged
from pairbench.analyze.compare.match import Matched, match
from pairbench.analyze.compare.paired import judge_interleaved
from pairbench.analyze.compare.rounds import MeasuredSides, Pair, damage, pair_of, usable
from pairbench.model.acceptance import Acceptance
from pairbench.model.comparison import Change, Floor, Judgement
from pairbench.model.policy import DEFAULT, Policy
from pairbench.model.record import Record
from pairbench.model.series import Series

_Latencies = Mapping[Series, Mapping[str, Judgement]]


def compare(
    reference: Sequence[Record],
    current: Sequence[Record],
    *,
    floors: Mapping[Series, Floor] | None = None,
    policy: Policy = DEFAULT,
    accepted: Mapping[Series, Acceptance] | None = None,
    interleaved: bool = False,
    trusted: Collection[Series] | None = None,
) -> tuple[Change, ...]:
    """Return what became of each series.

    Args:
        reference: Records of the reference runs.
        current: Records of the current runs, those that measured suspects again among them.
        floors: How far series move between runs of the same code, as far as that is known.
        policy: The thresholds.
        accepted: Levels that were accepted on purpose.
        trusted: Series whose machine is quiet enough for their latencies to be judged; None for all.
        interleaved: Both sides were measured interleaved, so their rounds are pairs; there are no floors to such changes.
    """
    matched = match(reference, current)
    all_measured = [measured for item in matched if (measured := _measured_sides(item)) is not None]
    judged = (
        judge_interleaved(all_measured, policy) if interleaved else judge_latencies(all_measured, floors or {}, policy)
    )
    latencies = {
        measured.series: judgements if trusted is None or measured.series in trusted else unjudged(judgements)
        for measured, judgements in zip(all_measured, judged, strict=True)
    }
    beside: defaultdict[Pair, list[MeasuredSides]] = defaultdict(list)
    for measured in all_measured:
        beside[pair_of(measured.series)].append(measured)
    return tuple(
        change_of(
            Evidence(
                matched=item,
                measured=measured,
                latencies=latencies.get(item.series, {}),
                control=_control(measured, beside[pair_of(item.series)], latencies) if measured else None,
                acceptance=(accepted or {}).get(item.series),
                interleaved=interleaved,
                policy=policy,
            )
        )
        for item in matched
        for measured in [_find(item, beside)]
    )


def _measured_sides(item: Matched) -> MeasuredSides | None:
    """Return the records whose latencies can be judged; None where a side has none."""
    if item.outcome is not None:
        return None
    sides = [
        tuple(record for record in records if usable(record) and not damage(record))
        for records in (item.reference, item.current)
    ]
    return MeasuredSides(series=item.series, reference=sides[0], current=sides[1]) if all(sides) else None


def _find(item: Matched, beside: Mapping[Pair, Sequence[MeasuredSides]]) -> MeasuredSides | None:
    several = beside.get(pair_of(item.series), ())
    return next((measured for measured in several if measured.series == item.series), None)


def _control(measured: MeasuredSides, beside: Sequence[MeasuredSides], latencies: _Latencies) -> Control | None:
    """Return the baseline for a variant, and for a baseline the variant in the middle."""
    p50 = measured.latency.p50
    others = [
        other
        for other in beside
        if other.is_baseline is not measured.is_baseline
        and (judgement := latencies[other.series].get(p50))
        and judgement.change
    ]
    if not others:
        return None
    others.sort(key=lambda other: _estimate(latencies[other.series][p50]))
    middle = others[(len(others) - 1) // 2]
    changes = {
        metric: judgement.change
        for metric, judgement in latencies[middle.series].items()
        if judgement.change is not None and not judgement.relative_to_baseline
    }
    return Control(changes=changes, measured=middle)


def _estimate(judgement: Judgement) -> float:
    return judgement.change.estimate if judgement.change else 1.0
