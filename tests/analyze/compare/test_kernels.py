"""How two lists of kernels differ."""

from dataclasses import replace

import pytest

from pairbench.analyze.compare.attribute import kernel_changes
from pairbench.model.record import KernelCount, Record
from tests.builders import make_run

RECORD = make_run(0)[0]
LONG = "void at::native::elementwise_kernel<128, 4, lambda>(int, lambda)" * 5


def having(**kernels: tuple[int, float]) -> Record:
    return replace(
        RECORD,
        kernels=tuple(KernelCount(name=name, count=count, total_ns=ns) for name, (count, ns) in kernels.items()),
    )


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ((1, 1e5), (1, 1e5), None),
        ((1, 1e5), (1, 1.09e5), None),
        ((1, 1e5), (1, 1.2e5), "slower"),
        ((1, 1e5), (1, 0.8e5), "faster"),
        ((1, 1e3), (1, 1.4e3), None),
        ((1, 1e5), (2, 1e5), "more often"),
        ((2, 1e5), (1, 1e5), "less often"),
    ],
)
def test_one_kernel(before: tuple[int, float], now: tuple[int, float], expected: str | None) -> None:
    found = kernel_changes(having(k=before), having(k=now))
    assert [change.what for change in found] == ([expected] if expected else [])


def test_new_and_gone_by_their_whole_names_largest_first() -> None:
    found = kernel_changes(having(same=(1, 10.0), old=(1, 5.0)), having(**{"same": (1, 10.0), LONG: (3, 900.0)}))
    assert [(change.name, change.what) for change in found] == [(LONG, "new"), ("old", "gone")]
    assert (found[0].current_count, found[0].current_ns, found[0].reference_count) == (3, 900.0, 0)


def test_one_name_in_several_rows_is_one_kernel() -> None:
    twice = replace(RECORD, kernels=tuple(KernelCount(name="k", count=1, total_ns=1e5) for _ in range(2)))
    assert kernel_changes(twice, having(k=(2, 2e5))) == ()


def test_unknown_kernels_say_nothing() -> None:
    assert kernel_changes(replace(RECORD, kernels=None), RECORD) == ()
    assert kernel_changes(RECORD, replace(RECORD, kernels=None)) == ()
