"""Whatever stands in pyproject.toml is a configuration or a sentence that names the file or the setting."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbench.config import Config, load_config
from pairbench.errors import ConfigError

NAMES = (
    *("suites", "store", "tier", "mode", "rounds", "timeout", "timer", "tf32", "target", "min_samples", "max_samples"),
    *("case_seconds", "seed", "memory_fraction", "budget"),
)


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


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("suites = 3", "'suites' is 3, expected a list"),
        ("suites = [3]", r"'suites' is \[3\], expected a list"),
        ("timer = []", "timer"),
        ("tier = []", "tier"),
        ("mode = [[1]]", "mode"),
        ('store = ""', "store"),
        ('store = " "', "store"),
    ],
)
def test_a_setting_that_is_wrong_is_named(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.pairbench]\n{line}\n")
    with pytest.raises(ConfigError, match=said):
        load_config(tmp_path)


def test_an_empty_store_option_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--store is empty, expected a folder or URL"):
        load_config(tmp_path, store="")


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


@given(name=st.sampled_from(NAMES), value=values)
@settings(max_examples=400)
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
