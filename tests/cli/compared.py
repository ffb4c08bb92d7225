"""What tests of `pairbench compare` share: made-up runs in a folder, and what the command said of them."""

from collections.abc import Callable, Sequence
from pathlib import Path

from pairbench.model.record import Record
from tests.builders import CASES, run_id_of, write_runs
from tests.in_process import Said

SLOWER = {f"{CASES[0]}-fused": 1.2}


class Compared(Said):
    """What `compare` came to."""

    @property
    def outcomes(self) -> dict[str, int]:
        return {name: number for name, number in self.document["outcomes"].items() if number}


Cli = Callable[..., Compared]


def write(*runs: Sequence[Record], store: str = "results") -> None:
    write_runs(store, *runs)


def files() -> list[Path]:
    return sorted(Path("results/records").rglob("*.parquet"))


def reference_of(said: Compared) -> list[int]:
    ids = {run_id_of(number): number for number in range(100)}
    return [ids[run] for run in said.document["reference"]["runs"]]
