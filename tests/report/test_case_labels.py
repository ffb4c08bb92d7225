from collections.abc import Mapping
from dataclasses import replace

import pytest

from pairbench.model.site import SeriesFacts
from pairbench.report.units import WIDTH, case_labels, labels_of
from tests.report.site import made


def facts(axes: Mapping[str, object], operator: str = "op") -> SeriesFacts:
    key = f"{operator}[{','.join(f'{name}={value}' for name, value in sorted(axes.items()))}]"
    return replace(made.series_facts(made.series(key)), axes=axes)


def labels(*cases: Mapping[str, object]) -> list[str]:
    return list(case_labels([facts(axes) for axes in cases]).values())


def test_axes_that_differ_are_named_words_first_and_numbers_in_order_and_of_one_case_all() -> None:
    cases = [{"dtype": "bfloat16", "hidden": 4096, "tokens": tokens} for tokens in (1024, 9, 16384)]
    assert labels(*cases) == ["tokens=9", "tokens=1024", "tokens=16384"]
    cases = [{"tokens": tokens, "dtype": dtype} for tokens in (2, 1) for dtype in ("float32", "bfloat16")]
    assert labels(*cases) == ["bfloat16, tokens=1", "bfloat16, tokens=2", "float32, tokens=1", "float32, tokens=2"]
    assert labels({"dtype": "float32", "n": 4, "stride": [3, 1, 1]}) == ["float32, n=4, stride=3x1x1"]


def test_an_axis_that_some_cases_lack_is_named_where_it_is() -> None:
    assert labels({"n": 1, "layout": "strided"}, {"n": 1}) == [
        labels({"n": 1})[0].replace("n=1", "op[n=1]"),
        "layout=strided",
    ]


def test_sizes_that_only_follow_others_are_left_out_where_there_is_no_room() -> None:
    names = ("batch", "channels", "height", "length", "width")
    cases = [{"dtype": "bfloat16", **{name: 1000 * size + at for at, name in enumerate(names)}} for size in (1, 2, 3)]
    found = labels(*cases)
    assert len(set(found)) == 3 and max(map(len, found)) <= 44
    assert all(label.endswith(f"width={1000 * size + 4}") for size, label in enumerate(found, start=1))


def test_every_series_has_the_label_of_its_case_once() -> None:
    pair = [facts({"n": 1}), replace(facts({"n": 1}), series=made.series("op[n=1]", "other"))]
    assert list(case_labels(pair)) == ["op[n=1]"]


@pytest.mark.parametrize("name", made.HOSTILE)
def test_hostile_names_are_cut_and_stay_apart(name: str) -> None:
    found = labels({name: name, "n": 1}, {name: name + "y" * 200, "n": 1})
    assert len(set(found)) == 2 or len(name) == 10_000
    assert all(label and len(label) <= WIDTH and label.isprintable() for label in found)


def test_where_there_is_more_room_more_axes_are_named() -> None:
    cases = {
        f"op[{n}]": {"channels": 100 + n, "height": 200 + n, "width": 300 + n, "latents": 400 + n, "taps": 500 + n}
        for n in range(3)
    }
    few, many = (list(labels_of(cases, fits=fits).values()) for fits in (30, 80))
    assert all(len(label) <= 30 for label in few)
    assert many[0] == "channels=100, height=200, latents=400, taps=500, width=300"
