"""`--implementation`: which benchmarks are a pair, and what is refused."""

import math

import pytest

from pairbench.errors import UsageError
from pairbench.features.exchange.importing import Pairing, order_interval, split
from pairbench.features.exchange.values import Axes, Result, Timing, told_apart


def result(*axes: tuple[str, str | int], label: str = "", p50_ns: float = 1000.0) -> Result:
    timing = Timing(timer="asv", p50_ns=p50_ns, n_samples=1)
    return Result(suite="square.py", operator="square", axes=tuple(sorted(axes)), label=label, timing=timing)


def test_the_baseline_has_one_name() -> None:
    pairing = Pairing.parse("way:plain")
    assert pairing.split(result(("way", "plain"), ("n", 4))) == ("baseline", (("n", 4),))
    assert pairing.split(result(("way", "fast"), ("n", 4))) == ("fast", (("n", 4),))
    assert pairing.split(result(("n", 4))) == ("baseline", (("n", 4),))


def test_without_a_pairing_all_are_baselines() -> None:
    axes: Axes = (("n", 4), ("way", "fast"))
    assert split(result(*axes), None) == ("baseline", axes)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", [":plain", "way:", ""])
def test_a_pairing_names_its_axis(text: str) -> None:
    with pytest.raises(UsageError, match="expected AXIS or AXIS:BASELINE"):
        Pairing.parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("colour:plain", "no benchmark has such a parameter, expected one of n, way"),
        ("way:slow", "it never is 'slow'.* with one of fast, plain"),
        ("way", "it never is 'baseline'"),
    ],
)
def test_a_pairing_that_pairs_nothing_is_refused(text: str, message: str) -> None:
    results = [result(("way", "plain"), ("n", 4)), result(("way", "fast"), ("n", 4))]
    with pytest.raises(UsageError, match=message):
        Pairing.parse(text).check(results)


def test_two_baselines_are_refused() -> None:
    results = [result(("way", "baseline")), result(("way", "plain"))]
    with pytest.raises(UsageError, match="what the baseline is called here"):
        Pairing.parse("way:plain").check(results)
    Pairing.parse("way").check(results)


def test_what_cannot_be_read_is_not_the_pairings_fault() -> None:
    Pairing.parse("way:plain").check([])


def test_equal_cases_are_told_apart_by_their_labels_and_once() -> None:
    twins = [result(("way", "lambda-1"), label=label) for label in ("<lambda>0", "<lambda>1", "<lambda>1")]
    kept, twice = told_apart([*twins, result(("way", "plain"), label="plain")])
    assert [item.axes[0][0] for item in kept] == ["id", "id", "way"]
    assert len({item.axes for item in kept}) == 3
    assert twice == ("square.py::square[<lambda>1]",)


def test_the_interval_of_a_percentile_covers_it() -> None:
    """95 % of the time, as for any distribution: here of 400 samples of each of 1000 processes."""
    import random

    rng = random.Random(1)
    for q, truth in ((50, 0.5), (95, 0.95)):
        found = [order_interval([rng.random() for _ in range(400)], q) for _ in range(1000)]
        assert all(low <= estimate <= high for estimate, low, high in found)
        assert 0.93 <= sum(low <= truth <= high for _, low, high in found) / len(found) <= 0.985


def test_the_interval_of_six_samples_is_all_of_them_and_fewer_have_none() -> None:
    assert order_interval([3.0, 1.0, 2.0, 6.0, 5.0, 4.0], 50) == (3.5, 1.0, 6.0)
    for few in ([3.0, 1.0, 2.0, 5.0, 4.0], [1.0]):
        estimate, low, high = order_interval(few, 50)
        assert estimate == sorted(few)[len(few) // 2] and math.isnan(low) and math.isnan(high)
