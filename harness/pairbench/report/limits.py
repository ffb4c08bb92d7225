"""Classifies what limits a series: the host, its launches, memory or arithmetic. Derived from its numbers."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pairbench.model.site import SeriesFacts
from pairbench.report import units
from pairbench.report.charts.roofline import intensity_of, ridge, roof_fraction
from pairbench.report.latency_words import issuing

LIMITS = {
    "host": "issuing the call takes the host longer than its work takes the device: a stream of calls waits for the host",
    "launches": "kernels take less than 10 us each on the device, much of which is starting and ending",
    "memory": "at least 60 % of the bandwidth of a copy",
    "compute": "at least 60 % of the rate of a library matrix product in its dtype",
    "none of these": "below 60 % of its roof, with longer kernels and a host that keeps up: room for another kernel",
}
"""Words for what limits a series, each with its condition."""

_SHORT_NS = 10_000.0
"""Time of a kernel in ns below which launching limits: adding 64 Ki elements takes 4.4 us on an H200, mostly overhead."""
_NEAR = 0.6


@dataclass(frozen=True, kw_only=True)
class Limit:
    """The limit of a series: a word, and by how much it is reached."""

    word: str
    """One of LIMITS; empty where the series' numbers do not tell."""
    detail: str
    """The numbers that the word follows from; empty where `word` is."""


def limit_of(one: SeriesFacts, ceilings: Mapping[str, float]) -> Limit:
    """Return what limits a series; of what applies, what comes first in `LIMITS`."""
    host, device = one.numbers.get("host_p50_ns"), one.numbers.get("device_p50_ns", math.nan)
    kernels = one.numbers.get("kernels_per_call", 0.0)
    if one.texts.get("bound") == "host":
        return Limit(word="host", detail=issuing(host, device))
    if kernels >= 1 and device / kernels < _SHORT_NS:
        number = f"{units.count(kernels)} kernel{'' if kernels == 1 else 's'}"
        return Limit(word="launches", detail=f"{number} of {units.duration(device / kernels)}")
    fraction = roof_fraction(one, ceilings)
    if math.isnan(fraction):
        return Limit(word="", detail="")
    detail = f"{units.percent(fraction)} of its roof"
    if fraction < _NEAR:
        return Limit(word="none of these", detail=detail)
    # Where the dtype is not known there is a fraction only where memory limits.
    arithmetic = bool(one.dtype) and intensity_of(one) >= ridge(ceilings, one.dtype)
    return Limit(word="compute" if arithmetic else "memory", detail=detail)
