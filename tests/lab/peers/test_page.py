from pathlib import Path

import pytest

from tests.in_process import call_main
from tests.lab.page import markdown, tables_in
from tests.lab.peers.bench import PAGE, packages, refused, tables, times

ROOT = Path(__file__).parents[3]


def test_the_committed_tables_are_those_of_the_reference_runs() -> None:
    """Where this fails, a suite or the reference runs changed: `nox -s results` writes the tables anew."""
    select = ("results", "suites/peers", "--store", "results/reference", "--tier", "real", "--format", "json")
    done = call_main(ROOT, *select)
    assert done.code == 0, done.err
    made = {name: f"{markdown(rows)}\n" for name, rows in tables(done.document)}
    assert tables_in(PAGE.read_text(encoding="utf-8")) == made


def result(implementation: str, us: float | None, status: str = "measured", **more: object) -> dict[str, object]:
    numbers = {"device_p50_ns": us and us * 1e3, "call_p50_ns": 9e4, "peak_bytes": 100, "reason": None}
    return {"implementation": implementation, "status": status, **numbers, **more}


def document(*results: dict[str, object]) -> dict[str, object]:
    case = {"label": "n=8", "modes": [{"baseline": result("baseline", 40), "variants": results}]}
    return {"results": [{"suite": "suites/peers/norms.py", "operator": "peer_norm", "cases": [case]}]}


def test_a_package_has_its_fastest_kernel_and_a_refused_one_its_reason() -> None:
    off = result("liger_float32", None, "mismatched", reason="a * b")
    one = document(result("builtin", 20), result("liger", 10, peak_bytes=101), off, result("fla", None))
    row = dict(zip(*times(one), strict=True))
    assert row["Liger"] == "**10.00 us**" and row["PyTorch"] == "20.00 us"
    assert row["FLA"] == "90.00 us (call)" and row["quack"] == ""
    head, *rows = packages(one)
    liger = next(dict(zip(head, row, strict=True)) for row in rows if row[0] == "Liger")
    assert (liger["fastest"], liger["more memory than PyTorch"], liger["wrong"]) == ("1", "1", "0")
    assert liger["speed beside PyTorch's"] == "2.000x to 2.000x"
    assert refused(one)[1:] == [["Liger (`liger_float32`)", "`norms.py::peer_norm`", "n=8", "a \\* b"]]


@pytest.mark.parametrize("status", ["skipped", "failed"])
def test_a_case_without_a_latency_has_no_row(status: str) -> None:
    nothing = document(result("fla", None, status, reason="why"))
    nothing["results"][0]["cases"][0]["modes"][0]["baseline"] = None  # type: ignore[index]
    assert len(times(nothing)) == 1 and len(refused(nothing)) == (2 if status == "failed" else 1)
