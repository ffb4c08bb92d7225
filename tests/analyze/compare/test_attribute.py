"""The likely cause of a change, for every line of the table, and what it means to a gate."""

import pytest

from pairbench.analyze.compare.attribute import (
    Circumstances,
    era_words,
    moved_along,
    of_count,
    of_latency,
    outcome_of_move,
)
from pairbench.model.comparison import Attribution, EraChange, GateOutcome
from pairbench.stats import Interval

SLOWER = Interval(1.05, 1.04, 1.06)
STILL, ALONG, NOISY, AGAINST = Interval(1.0, 0.99, 1.01), SLOWER, Interval(1.04, 0.9, 1.2), Interval(0.95, 0.94, 0.96)
DRIVER = (EraChange(field="driver", reference="580.1", current="580.2"),)


def known(era: tuple[EraChange, ...] = (), changed: bool | None = False, *, interleaved: bool = False) -> Circumstances:
    return Circumstances(era=era, implementation_changed=changed, control_changed=False, interleaved=interleaved)


@pytest.mark.parametrize(
    ("control", "era", "changed", "expected"),
    [
        (STILL, (), True, Attribution.CODE),
        (STILL, (), False, Attribution.CODE),
        (None, (), None, Attribution.CODE),
        (NOISY, (), False, Attribution.CODE),
        (AGAINST, (), False, Attribution.CODE),
        (ALONG, (), False, Attribution.MACHINE),
        (ALONG, (), True, Attribution.MACHINE),
        (ALONG, DRIVER, True, Attribution.ENVIRONMENT),
        (STILL, DRIVER, False, Attribution.ENVIRONMENT),
        (None, DRIVER, True, Attribution.ENVIRONMENT),
        (STILL, DRIVER, True, Attribution.CODE),
    ],
)
def test_latency(
    control: Interval | None, era: tuple[EraChange, ...], changed: bool | None, expected: Attribution
) -> None:
    found, why = of_latency(SLOWER, control, known(era, changed))
    assert found is expected
    assert ("driver 580.1 -> 580.2" in why) == (expected is Attribution.ENVIRONMENT)
    if control is not None:
        assert f"its control moved {100 * (control.estimate - 1):+.1f} %" in why


def test_a_source_that_did_not_change_is_said() -> None:
    assert "its source did not change" in of_latency(SLOWER, STILL, known(changed=False))[1]
    assert "its source changed" in of_latency(SLOWER, STILL, known(changed=True))[1]


def test_in_turns_the_machine_is_the_same() -> None:
    assert of_latency(SLOWER, ALONG, known(changed=True, interleaved=True))[0] is Attribution.CODE


def test_a_machine_slows_no_count() -> None:
    assert of_count(known())[0] is Attribution.CODE
    assert of_count(known(DRIVER))[0] is Attribution.ENVIRONMENT
    assert of_count(known(DRIVER, changed=True))[0] is Attribution.CODE


def test_along_means_the_same_way_by_half_and_not_by_chance() -> None:
    assert moved_along(SLOWER, Interval(1.03, 1.01, 1.05))
    assert not moved_along(SLOWER, Interval(1.02, 1.01, 1.03))
    assert moved_along(AGAINST, Interval(0.96, 0.95, 0.97))
    assert not moved_along(AGAINST, ALONG)


def test_many_fields_are_counted() -> None:
    many = tuple(EraChange(field=str(number), reference="a", current=None) for number in range(5))
    assert era_words(many) == "0 a -> none, 1 a -> none, 2 a -> none and 2 more"


@pytest.mark.parametrize(
    ("attribution", "slower", "faster"),
    [
        (Attribution.CODE, GateOutcome.REGRESSION, GateOutcome.IMPROVEMENT),
        (Attribution.ENVIRONMENT, GateOutcome.UNDECIDED, GateOutcome.IMPROVEMENT),
        (Attribution.MACHINE, GateOutcome.UNDECIDED, GateOutcome.UNDECIDED),
        (None, GateOutcome.UNDECIDED, GateOutcome.UNDECIDED),
    ],
)
def test_what_a_move_means_to_a_gate(attribution: Attribution | None, slower: GateOutcome, faster: GateOutcome) -> None:
    assert (outcome_of_move(1.05, attribution), outcome_of_move(0.95, attribution)) == (slower, faster)
