"""Settings: the nearest pyproject.toml under the options, and for whatever else stands in it a sentence that names the file or the setting."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbench.config import Config, load_config
from pairbench.errors import ConfigError
from pairbench.model.environment import Settings


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def make(*lines: str, folder: Path = tmp_path) -> Path:
        folder.mkdir(exist_ok=True)
        (folder / "pyproject.toml").write_text("\n".join(["[tool.pairbench]", *lines]))
        return folder

    return make


def test_an_empty_folder_has_the_defaults(tmp_path: Path) -> None:
    found = load_config(tmp_path)
    assert found.settings == Settings() and found.suites is None and found.given == frozenset()
    assert found.root == tmp_path and found.store == str(tmp_path / "results")


def test_the_file_is_found_upwards_and_its_places_are_relative_to_it(write: Any, tmp_path: Path) -> None:
    write('suites = ["ops", "more.py"]', 'store = "kept"', "rounds = 5", 'self_tests = ["selftest/*"]')
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    found = load_config(deep)
    assert found.root == tmp_path and found.suites == ("ops", "more.py") and found.self_tests == ("selftest/*",)
    assert found.store == str(tmp_path / "kept") and found.settings.rounds == 5


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("10m", 600), ("1.5h", 5400), ("none", None)])
def test_a_budget_is_a_length_of_time(write: Any, tmp_path: Path, text: str, seconds: float | None) -> None:
    assert load_config(write(f'budget = "{text}"')).budget_s == seconds
    assert load_config(tmp_path, budget="2s").budget_s == 2
    assert load_config(tmp_path, budget="none").budget_s is None


def test_a_file_without_our_table_is_passed_over(write: Any, tmp_path: Path) -> None:
    write("rounds = 5")
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert load_config(inner).settings.rounds == 5


def test_options_win_and_absent_ones_do_not(write: Any) -> None:
    folder = write("rounds = 5", "seed = 3", 'tier = ["real"]')
    found = load_config(folder, rounds=2, tier=None, seed=None, store="elsewhere")
    assert (found.settings.rounds, found.settings.seed, found.settings.tiers) == (2, 3, ("real",))
    assert found.store == "elsewhere", "an option is relative to where the user stands"
    assert load_config(write('store = "s3://bucket/results"')).store == "s3://bucket/results"
    with pytest.raises(ConfigError, match="--store is empty, expected a folder or URL"):
        load_config(folder, store="")
    assert {"rounds", "seed", "tiers"} <= found.given and "timeout_s" not in found.given


@pytest.mark.parametrize(
    ("options", "name", "value"),
    [
        ({"tier": ["smoke", "real"]}, "tiers", ("smoke", "real")),
        ({"tier": ["smoke,real", "smoke"]}, "tiers", ("smoke", "real")),
        ({"tier": "all"}, "tiers", ("edge", "smoke", "real", "headline")),
        ({"mode": ["all"]}, "modes", ("eager", "compile", "graph")),
        ({"timeout": 3}, "timeout_s", 3.0),
        ({"tf32": True}, "tf32", True),
        ({"seed": 0}, "seed", 0),
        ({"case_seconds": 2}, "case_seconds", 2.0),
    ],
    ids=str,
)
def test_values(tmp_path: Path, options: dict[str, Any], name: str, value: object) -> None:
    found = getattr(load_config(tmp_path, **options).settings, name)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("round = 3", "setting 'round' is unknown; did you mean 'rounds'?"),
        (
            "banana = 3",
            "setting 'banana' is unknown; expected one of against, budget, build, case_seconds, isolated, max_samples",
        ),
        ("rounds = 0", "setting 'rounds' is 0, expected more than 0"),
        ("rounds = 2.5", "setting 'rounds' is 2.5, expected a whole number"),
        ("rounds = true", "setting 'rounds' is True, expected a whole number"),
        ('rounds = "3"', "setting 'rounds' is '3', expected a whole number"),
        ("target = 0", "setting 'target' is 0, expected more than 0"),
        ('case_seconds = "long"', "setting 'case_seconds' is 'long', expected a number"),
        ("tf32 = 1", "setting 'tf32' is 1, expected true or false"),
        ('mode = "fast"', "mode 'fast' is unknown, expected one of eager, compile, graph, or all"),
        ('tier = ["smoke", "huge"]', "tier 'huge' is unknown, expected one of edge, smoke, real, headline, or all"),
        ("against = 3", "setting 'against' is '3'; expected a file or a folder of candidates"),
        ("against = 'gone.py'", "setting 'against' is 'gone.py', which does not exist; expected a file or a folder of"),
        ("budget = 600", "setting 'budget' is 600, expected a length of time such as '90s', '10m' or '1h', or 'none'"),
        ('timer = "sundial"', "timer 'sundial' is unknown, expected one of auto, do_bench"),
        ('suites = "ops.py"', "setting 'suites' is 'ops.py', expected a list of files and folders: ['ops.py']"),
        ("suites = [3]", "setting 'suites' is [3], expected a list of files and folders"),
        ("store = 3", "setting 'store' is 3, expected a folder or URL"),
        ("timeout = nan", "setting 'timeout' is nan, expected"),
        ("tier = 3", "tier 3 is unknown"),
        ("timer = []", "setting 'timer' is empty"),
        ('store = ""', "setting 'store' is empty"),
        ('self_tests = "selftest/*"', "setting 'self_tests' is 'selftest/*', expected a list of patterns of suites"),
        ("rounds =", "pyproject.toml: cannot be read: "),
    ],
)
def test_what_is_wrong_has_a_sentence(write: Any, line: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(line))
    assert words in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "content",
    [
        b"[tool]\npairbench = 3",
        b"tool = 3",
        b"[[tool.pairbench]]\nrounds = 3",
        b"[tool.pairbench]\nstore = '\xff\xfe'",
        b"\x00",
        b"a = " + b"[" * 100_000,
        b"[tool.pairbench]\nrounds = " + b"9" * 5000,
        b"[tool.pairbench]\n= 3",
    ],
    ids=["a number", "no table", "a list", "no UTF-8", "no text", "nested deeply", "an endless number", "no key"],
)
def test_a_file_that_is_wrong_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "pyproject.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=r"pyproject\.toml"):
        load_config(tmp_path)


values = st.recursive(
    st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["smoke", "eager", "all", "1h", "auto"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1, max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


NAMES = (
    *("suites", "store", "tier", "mode", "rounds", "timeout", "timer", "tf32", "target", "min_samples", "max_samples"),
    *("case_seconds", "seed", "memory_fraction", "isolated", "budget"),
)


@given(name=st.sampled_from(NAMES), value=values)
@settings(max_examples=100)
def test_any_value_of_any_setting(name: str, value: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pyproject.toml").write_text(f"[tool.pairbench]\n{name} = {toml(value)}\n", encoding="utf-8")
        said = ""
        try:
            assert isinstance(load_config(Path(folder)), Config)
        except ConfigError as error:
            said = str(error)
        assert not said or "expected" in said


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value)
