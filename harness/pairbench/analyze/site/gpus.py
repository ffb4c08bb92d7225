"""How far the GPUs of one model differ: the same series, by the same code in the same environment, on each of them."""

from collections import defaultdict
from collections.abc import Iterable
from statistics import median

from pairbench.analyze.history.points import SeriesPoint
from pairbench.analyze.history.trend import Trend
from pairbench.model.site import GpuSpread
from pairbench.stats import percentile

_NEWEST = 5
"""Runs of a series on a GPU that count, the newest."""


def gpu_ratios(trend: Trend) -> dict[str, float]:
    """Return for each GPU that has a series its latency over the median GPU's; nothing where one GPU has it alone.

    Only what the newest run can be compared with counts: the same source, definition and environment.
    """
    newest = next((point for point in reversed(trend.points) if point.p50), None)
    if newest is None:
        return {}
    of_gpu: defaultdict[str, list[float]] = defaultdict(list)
    for point in trend.points:
        if point.p50 and point.record.device_uuid and _question(point) == _question(newest):
            of_gpu[point.record.device_uuid].append(point.p50.estimate)
    if len(of_gpu) < 2:
        return {}
    levels = {gpu: median(values[-_NEWEST:]) for gpu, values in of_gpu.items()}
    middle = median(levels.values())
    return {gpu: level / middle for gpu, level in levels.items()}


def _question(point: SeriesPoint) -> tuple[int, str | None, str]:
    return point.part, point.record.implementation_hash, point.record.environment_hash


def spreads(ratios: Iterable[tuple[str, dict[str, float]]]) -> tuple[GpuSpread, ...]:
    """Return a row for each GPU, the models by name and the slowest of each first.

    Args:
        ratios: The device model of each series, and what `gpu_ratios` returns for it.
    """
    of_gpu: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for device_name, several in ratios:
        for gpu, ratio in several.items():
            of_gpu[device_name, gpu].append(ratio)
    rows = [
        GpuSpread(
            device_name=device_name,
            gpu=gpu,
            series=len(values),
            ratio=median(values),
            low=percentile(values, 10),
            high=percentile(values, 90),
        )
        for (device_name, gpu), values in of_gpu.items()
    ]
    return tuple(sorted(rows, key=lambda row: (row.device_name, -row.ratio, row.gpu)))
