import pytest

from pairbench.config import Config
from pairbench.model.comparison import Attribution, GateOutcome
from pairbench.model.site import Event, SiteFacts
from pairbench.site.gather import SiteReading
from tests.builders import run_id_of
from tests.site import planted
from tests.site.planted import H100, H200, case, run_number

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> SiteFacts:
    store = tmp_path_factory.mktemp("planted")
    planted.planted(store)
    reading = SiteReading(Config(root=store, store=str(store)))
    list(reading.operators())
    return reading.facts


def of(facts: SiteFacts, day: int, kind: str = "moved") -> Event:
    (event,) = [one for one in facts.events if one.after.run_id == run_id_of(run_number(day)) and one.kind == kind]
    return event


def test_nothing_else_happened(facts: SiteFacts) -> None:
    days = (planted.MORE, planted.ACCEPTED, planted.BESIDE, planted.BROKEN, planted.DRIVER, planted.LATE, planted.OPS)
    assert [event.after.run_id for event in facts.events] == [run_id_of(run_number(day)) for day in days]
    assert {event.after.run_id for event in facts.events if event.open} == {
        run_id_of(run_number(day)) for day in (planted.MORE, planted.BESIDE)
    }


def test_more_launches_are_still_there_on_both_devices(facts: SiteFacts) -> None:
    event = of(facts, planted.MORE)
    assert [one.device_name for one in event.everywhere] == [H200, H100]
    for one in event.everywhere:
        (moved,) = one.moved
        assert ("launches_per_call", 1, 3) in [(count.metric, count.before, count.after) for count in moved.counts]
        assert (one.outcome, one.life, moved.change) == (GateOutcome.REGRESSION, "still there", None)


def test_beside_a_driver_the_whole_regression_is_told(facts: SiteFacts) -> None:
    event = of(facts, planted.BESIDE)
    assert {one.series.case for one in event.moved} == {case("conv", tokens) for tokens in planted.AXIS}
    assert [one.size for one in event.moved] == [pytest.approx(1.05, abs=0.005)] * 2
    assert event.life == "still there" and event.outcome is GateOutcome.REGRESSION


def test_what_was_mended_or_accepted_is_not_open(facts: SiteFacts) -> None:
    late, broken, ops = of(facts, planted.LATE), of(facts, planted.BROKEN, "failed"), of(facts, planted.OPS)
    ends = [run_id_of(run_number(day)) for day in (planted.BACK, planted.MENDED, planted.FEWER)]
    assert [one.ended for one in (late, broken, ops)] == ends
    assert {one.life for one in (late, broken, ops)} == {"recovered"}
    assert late.moved[0].size == pytest.approx(1.1, abs=0.01)
    accepted = of(facts, planted.ACCEPTED)
    assert accepted.life == "accepted" and accepted.moved[0].accepted == "exact where the maximum is infinite"


def test_a_driver_is_named_and_blames_no_code(facts: SiteFacts) -> None:
    event = of(facts, planted.DRIVER, "environment")
    assert event.era == ("driver 580.1 -> 580.2",) and event.outcome is GateOutcome.IMPROVEMENT
    assert event.life == "noted" and event.median == pytest.approx(0.98, abs=0.002)
    assert {one.attribution for one in event.moved} == {Attribution.ENVIRONMENT}


def test_a_row_is_in_the_state_of_its_worst_open_event(facts: SiteFacts) -> None:
    states = {(row.device_name, row.operator): row.state for row in facts.rows}
    worse = {key for key, state in states.items() if state == "regression"}
    assert worse == {(H200, "conv"), (H200, "rms_norm"), (H100, "rms_norm")}
    assert set(states.values()) == {"regression", "unchanged"}
