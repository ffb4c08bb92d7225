"""Workers of rounds: how many are there at once, and when they begin."""

import pytest

from pairbench.execute.parent import session
from pairbench.execute.parent.session import RoundWorkers


class Fake:
    """Says what is done to it."""

    def __init__(self, log: list[str], name: str) -> None:
        self.log, self.name, self.started = log, name, False

    def get(self) -> None:
        if not self.started:
            self.started = True
            self.log.append(f"{self.name} starts")

    def wait(self) -> None:
        self.log.append(f"{self.name} is there")

    def close(self) -> None:
        self.log.append(f"{self.name} ends")


class Maker:
    """Makes the workers of one round after the other."""

    def __init__(self, each: int = 1) -> None:
        self.log: list[str] = []
        self.each, self.made = each, 0

    def __call__(self) -> tuple[Fake, ...]:
        self.made += 1
        return tuple(Fake(self.log, f"{self.made}{'ab'[index]}") for index in range(self.each))


def test_all_are_there_before_the_first_round_and_end_with_theirs() -> None:
    make = Maker(each=2)
    with RoundWorkers(make, 2) as ahead:  # type: ignore[arg-type]
        assert make.log == ["1a starts", "1b starts", "2a starts", "2b starts"]
        make.log.clear()
        with ahead.round() as (one, other):
            assert (one.name, other.name) == ("1a", "1b")  # type: ignore[attr-defined]
            assert make.log == ["1a is there", "1b is there", "2a is there", "2b is there"]
        assert make.log[4:] == ["1a ends", "1b ends"]
    assert make.log[6:] == ["2a ends", "2b ends"], "a round that was not reached"


@pytest.mark.parametrize("rounds_wanted", [12, 3])
def test_no_more_are_there_at_once_than_memory_is_for(monkeypatch: pytest.MonkeyPatch, rounds_wanted: int) -> None:
    monkeypatch.setattr(session, "_AHEAD", 4)
    make, names = Maker(), []
    with RoundWorkers(make, rounds_wanted) as ahead:  # type: ignore[arg-type]
        assert make.made == min(4, rounds_wanted)
        for _ in range(rounds_wanted + 1):  # one more than was said
            with ahead.round() as (workers,):
                names.append(workers.name)  # type: ignore[attr-defined]
                there = sum(line.endswith("starts") for line in make.log) - sum(
                    line.endswith("ends") for line in make.log
                )
                assert there <= 4
    assert names == [f"{number}a" for number in range(1, rounds_wanted + 2)]
