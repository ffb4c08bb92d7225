"""What a call prepared of its constants follows them when values change, and is made only once where they have none."""

from typing import Any

import pytest
import torch

from pairbench import Operator, Variant, grid
from pairbench.execute.worker.calls import make_call

prepared = list[Any]()


def scaled(x: torch.Tensor, scale: Any, doubled: Any = None) -> torch.Tensor:
    return x * (2 * scale if doubled is None else doubled)


def double(scale: Any) -> dict[str, torch.Tensor]:
    prepared.append(scale)
    return {"doubled": torch.as_tensor(2.0 * scale)}


@pytest.mark.parametrize(
    ("scale", "fresh", "times", "right"),
    [(torch.tensor(3.0), torch.tensor(5.0), 2, 10.0), (3.0, 3.0, 1, 6.0)],
    ids=["a tensor", "a number"],
)
def test_values_of_constants_are_prepared_anew_where_there_are_any(
    scale: Any, fresh: Any, times: int, right: float
) -> None:
    operator = Operator(
        "op",
        baseline=scaled,
        variants={"ahead": Variant(scaled, prepare=double)},
        inputs=lambda make, rows: {"x": torch.ones(rows), "scale": scale},
        constants=["scale"],
        cases=grid(rows=[1]),
    )
    prepared.clear()
    given = {"x": torch.ones(1), "scale": scale}
    call = make_call(operator, operator.implementations["ahead"], "eager", given)
    address = call.kwargs["doubled"].data_ptr()
    assert call.refill({"x": torch.ones(1), "scale": fresh})
    assert (call.run().item(), len(prepared)) == (right, times)
    assert call.kwargs["doubled"].data_ptr() == address
