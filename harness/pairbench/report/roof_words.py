"""How near a record comes to what the device can do, as text: its rate of arithmetic or of bytes, and its part of the roof."""

import math

from pairbench.analyze.site.facts import ceilings_of, series_facts
from pairbench.model.load import withheld
from pairbench.model.record import Record
from pairbench.model.series import Series
from pairbench.model.site import SeriesFacts, SeriesStatus
from pairbench.report import units
from pairbench.report.charts.roofline import intensity_of, ridge, roof_fraction

_COLUMNS = ("flops", "bytes_moved", "tflops", "gbps", "roofline_fraction")


def rate(record: Record) -> str:
    """Return a rate like `3800 GB/s`, or like `1.52 TFLOP/s` where arithmetic limits a case and not memory.

    Empty where no cost is declared, or the latency is not to be believed.
    """
    facts = _facts(record)
    if facts is None:
        return ""
    numbers, ceilings = facts.numbers, ceilings_of(record)
    dtypes = [facts.dtype] if facts.dtype else [name.removesuffix("_tflops") for name in ceilings]
    ridges = [found for dtype in dtypes if not math.isnan(found := ridge(ceilings, dtype))]
    intensity = intensity_of(facts)
    # Where nothing is known of the roof, nearly everything with so few operations a byte is limited by memory.
    arithmetic = math.isnan(intensity) or intensity >= max(ridges, default=_INTENSE)
    if arithmetic and numbers.get("tflops"):
        return f"{units.significant(numbers['tflops'], 3)} TFLOP/s"
    return f"{units.significant(numbers['gbps'], 4)} GB/s" if numbers.get("gbps") else ""


_INTENSE = 10.0


def part_of_roof(record: Record) -> str:
    """Return the part of its roof that a record reaches, like `85%`; empty where that is not known."""
    facts = _facts(record)
    return "" if facts is None else units.percent(roof_fraction(facts, ceilings_of(record)))


def _facts(record: Record) -> SeriesFacts | None:
    series = Series.of(record)
    if series is None or record.gbps is None or withheld(record.device_kind, record.environment):
        return None
    return series_facts(record, series, SeriesStatus(state="unchanged"), columns=_COLUMNS)
