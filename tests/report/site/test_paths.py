import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbench.site import paths, templates
from tests import builders
from tests.report.site import made

SHA = "0123456789abcdef0123456789abcdef01234567"
FILE = re.compile(r"[a-z]+/[a-z0-9][a-z0-9_-]{0,70}\.(html|js|svg)")

names = st.text() | st.sampled_from(made.HOSTILE)


@given(names, names, names)
def test_no_name_leaves_its_folder(device: str, suite: str, operator: str) -> None:
    pages = [paths.operator_page(device, suite, operator), paths.run_page(operator, device)]
    for path in (*pages, *map(paths.data_of, pages), paths.badge(device, suite, operator)):
        assert FILE.fullmatch(path)


@given(st.tuples(names, names, names), st.tuples(names, names, names))
def test_other_operators_have_other_pages(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    assert (paths.operator_page(*one) == paths.operator_page(*other)) == (one == other)


def test_plain_names_can_be_read() -> None:
    page = paths.operator_page("NVIDIA H200", "suites/norm.py", "rms_norm")
    assert re.fullmatch(r"operators/rms_norm-[0-9a-f]{8}\.html", page)
    assert paths.run_page(builders.run_id_of(0), "CPU").startswith("runs/20240101t000000-b6589f-")


def test_runs_that_differ_in_case_or_device_have_pages_of_their_own() -> None:
    runs = [("run-A", "CPU"), ("run-a", "CPU"), ("run-a", "GPU")]
    assert len({paths.run_page(*run) for run in runs}) == len(runs)


@given(names)
def test_an_anchor_is_one_word(text: str) -> None:
    # An equals sign would be read as the state of a page.
    assert re.fullmatch(r"[a-z0-9_-]+", paths.anchor(text))


def test_addresses_of_the_repository() -> None:
    other = SHA[::-1]
    assert templates.commit_url("https://example.org/a/b", SHA) == f"https://example.org/a/b/commit/{SHA}"
    assert templates.commit_url("https://example.org/a/b.git/", SHA) == f"https://example.org/a/b/commit/{SHA}"
    assert templates.range_url("https://example.org/a", SHA, other) == f"https://example.org/a/compare/{SHA}...{other}"
    assert templates.range_url("https://example.org/a", SHA, SHA) is None
    assert (
        templates.source_url("https://example.org/a", SHA, "suites/a b.py", 3)
        == f"https://example.org/a/blob/{SHA}/suites/a%20b.py#L3"
    )


@pytest.mark.parametrize(
    ("repository", "commit", "path"),
    [
        *((name, SHA, "a.py") for name in (None, "", "javascript:alert(1)", "git@example.org:a/b", "https://a b")),
        *((name, SHA, "a.py") for name in made.HOSTILE),
        *(("https://example.org/a", name, "a.py") for name in (None, "", "abc", "main", *made.HOSTILE)),
        *(
            ("https://example.org/a", SHA, name)
            for name in ("", "/etc/passwd", "../a.py", "a/../../b.py", "x" * 10_000)
        ),
    ],
)
def test_what_is_no_address_no_commit_or_no_file_makes_no_link(
    repository: str | None, commit: str | None, path: str
) -> None:
    assert templates.source_url(repository, commit, path, 1) is None
    if path == "a.py":
        assert templates.commit_url(repository, commit) is None
        assert templates.range_url(repository, commit, SHA[::-1]) is None
