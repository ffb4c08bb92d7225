"""A variant that computes for some calls, as many as verifying takes, and from then on returns its last answer.

Only the recheck of the calls that were timed can see it.
"""

from pairbench import Operator, grid


def inputs(make, rows, dtype):
    return {"x": make.normal(rows, 16, dtype=dtype)}


def baseline(x):
    return x + x


def good(x):
    return x * 2


_calls = 0
_answer = None


def later(x):
    global _calls, _answer
    _calls += 1
    if _calls <= 10:
        _answer = x * 2
    return _answer


cached_later = Operator(
    "cached_later",
    baseline=baseline,
    variants={"later": later, "good": good},
    inputs=inputs,
    cases=grid(rows=[4], dtype=["float32"]),
)
