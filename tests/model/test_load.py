"""When a host is too busy for its times to be believed, and how that is kept with a run."""

import json
from dataclasses import replace

import pytest

from pairbench.model.environment import HostLoad, load_of, withheld
from tests.analyze.test_records import ENVIRONMENT


@pytest.mark.parametrize(
    ("before", "rounds", "cpu", "gpu"),
    [
        (2.0, (), True, True),
        (0.1, (0.2, 0.3), False, False),
        (0.1, (0.2, 0.9), True, False),
        (None, (None, None), False, False),
        (None, (None, 1.9), True, True),
    ],
)
def test_the_busiest_moment_counts(
    before: float | None, rounds: tuple[float | None, ...], cpu: bool, gpu: bool
) -> None:
    load = HostLoad(cores=2, before=before, rounds=rounds)
    said = (load.disturbs("cpu"), load.disturbs("cuda"))
    busy = f"{load.most} of 2 cores are busy with other work: latencies of this run"
    assert said == (
        f"{busy} are not to be believed" if cpu else None,
        f"{busy} that the host limits are not to be believed" if gpu else None,
    )


def test_it_is_stored_with_what_was_observed_and_changes_no_hash() -> None:
    load = HostLoad(cores=2, before=1.5, rounds=(0.5, None), performance_states=(0, 2), foreign_processes=(42,))
    environment = load.put_in(ENVIRONMENT)
    assert environment.hash == ENVIRONMENT.hash
    assert environment.rest["observed"]["ceilings"] == ENVIRONMENT.rest["observed"]["ceilings"]
    stored = json.dumps(environment.rest)
    assert load_of(stored) == load
    assert withheld("cpu", stored) and withheld("cuda", stored) is None
    assert replace(load, before=0.1, rounds=()).disturbs("cpu") is None


@pytest.mark.parametrize("environment", [None, "", "{}", "nonsense", '{"observed": {"load": {"cores": 2}}}', "[1]"])
def test_runs_that_did_not_store_it_are_shown_as_ever(environment: str | None) -> None:
    assert load_of(environment) is None and withheld("cpu", environment) is None
