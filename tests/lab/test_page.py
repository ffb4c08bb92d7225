import pytest

from tests.lab.page import filled, rate, tables_in


def test_tables_go_between_their_markers() -> None:
    page = "a\n<!-- table: null -->\nold\n<!-- end -->\nb\n<!-- table: time -->\nkept\n<!-- end -->\n"
    done = filled(page, {"null": "new \\1"})
    assert done == page.replace("old", "new \\1") and tables_in(done) == {"null": "new \\1\n", "time": "kept\n"}
    with pytest.raises(ValueError, match="expected one"):
        filled(page, {"unknown": ""})


def test_a_rate_comes_with_its_interval() -> None:
    assert rate(0, 1000) == "0.00 (0.00 to 0.37)"
    assert rate(10, 1000) == "1.00 (0.48 to 1.83)"
