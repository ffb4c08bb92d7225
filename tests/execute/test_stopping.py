import numpy as np
import pytest

from pairbench.execute.stopping import BlockLatencies, PairedBlocks, Stopping
from pairbench.model.environment import Settings
from pairbench.model.outcome import PRECISE, SAMPLE_CAP, TIME_CAP

STOPPING = Stopping(target=0.01, least=20, most=100, seconds=1.0, unsure_seconds=2.0)


def pair(spread: float, device_ns: float | None = None, blocks: int = 200) -> PairedBlocks:
    return PairedBlocks(np.linspace(-spread, spread, blocks), device_ns)


SURE, FEW, UNSURE = pair(0), pair(0, blocks=7), pair(1)


@pytest.mark.parametrize(
    ("blocks", "elapsed", "pairs", "reason"),
    [
        (20, 0.1, [SURE], PRECISE),
        (19, 0.1, [SURE], None),
        (20, 0.1, [UNSURE], None),
        (20, 0.1, [SURE, UNSURE], None),
        (99, 0.9, [UNSURE], None),
        (100, 0.1, [UNSURE], SAMPLE_CAP),
        (99, 1.0, [UNSURE], TIME_CAP),
        (100, 1.0, [UNSURE], TIME_CAP),
        (10, 1.0, [UNSURE], TIME_CAP),
        (9, 1.0, [UNSURE], None),
        (9, 4.9, [UNSURE], None),
        (1, 5.0, [UNSURE], TIME_CAP),
        (20, 0.0, [], PRECISE),
        (0, 0.0, [], None),
        (50, 0.0, [FEW], None),
        # The ratio is known to 1.5 %: enough at 5 us, where processes differ by 2 %, and not at 50 us.
        (50, 0.1, [pair(0.1, 5e3)], PRECISE),
        (50, 0.1, [pair(0.1, 5e4)], None),
        (50, 0.1, [pair(0.1)], None),
        # A device's ratio that is known badly has twice the time: 0.25 leaves 3.7 % where 2 % are enough.
        (50, 0.99, [pair(0.12, 1e6)], None),
        (50, 1.0, [pair(0.12, 1e6)], TIME_CAP),
        (50, 1.0, [pair(0.25, 1e6)], None),
        (50, 1.99, [pair(0.25, 1e6)], None),
        (50, 2.0, [pair(0.25, 1e6)], TIME_CAP),
        (9, 2.0, [pair(0.25, 1e6)], None),
        (9, 5.0, [pair(0.25, 1e6)], TIME_CAP),
        (50, 1.0, [pair(0.25, 5e3)], TIME_CAP),
        (50, 1.0, [pair(0.25)], TIME_CAP),
    ],
)
def test_reasons(blocks: int, elapsed: float, pairs: list[PairedBlocks], reason: str | None) -> None:
    assert STOPPING.reason(blocks, elapsed, pairs) == reason


@pytest.mark.parametrize(("wanted", "shared"), [(1, 10), (30, 10), (31, 11), (2000, 667)])
def test_samples_are_shared_over_the_rounds(wanted: int, shared: int) -> None:
    found = Stopping.of(Settings(rounds=3, min_samples=wanted, max_samples=10 * wanted, case_seconds=0.5))
    assert (found.least, found.most) == (shared, max(10, -(-10 * wanted // 3)))
    assert (found.seconds, found.unsure_seconds, found.longest_s) == (0.5, 1.0, 2.5)


def test_a_pair_is_that_of_the_device_where_both_have_it() -> None:
    good = np.array([True, False, True])
    one, other = BlockLatencies((8.0, 9.0, 8.0), (4.0, 9.0, 4.0)), BlockLatencies((1.0, 1.0, 1.0), (2.0, 9.0, 2.0))
    pair = PairedBlocks.of(one, other, good)
    assert pair.device_ns == 2.0 and np.exp(pair.log_ratios) == pytest.approx([2.0, 2.0])
    pair = PairedBlocks.of(one, other._replace(device_ns=None), good)
    assert pair.device_ns is None and np.exp(pair.log_ratios) == pytest.approx([8.0, 8.0])
    assert PairedBlocks.of(one, other, np.zeros(3, dtype=bool)).device_ns is None
