"""The conditions of GitHub's and GitLab's files, judged: names, texts, comparisons, `&&`, `||`, `!` and calls without arguments."""

import re
from collections.abc import Callable
from dataclasses import dataclass

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'[^']*'|\"[^\"]*\")|(?P<sign>&&|\|\||==|!=|!|\(|\))|(?P<call>\w+)\(\)|(?P<name>\$?[A-Za-z_][\w.-]*))"
)
_STATES = ("success", "failure", "always", "cancelled")

Value = str | bool


@dataclass
class _Parser:
    """Goes through the tokens once; what binds least comes first."""

    tokens: list[tuple[str, str]]
    look: Callable[[str], Value]
    place: int = 0

    def either(self) -> Value:
        value = self.both()
        while self._take("||"):
            other = self.both()
            value = value or other
        return value

    def both(self) -> Value:
        value = self.equal()
        while self._take("&&"):
            other = self.equal()
            value = value and other
        return value

    def equal(self) -> Value:
        value = self.one()
        if self._take("=="):
            return value == self.one()
        if self._take("!="):
            return value != self.one()
        return value

    def one(self) -> Value:
        if self._take("!"):
            return not self.one()
        if self._take("("):
            value = self.either()
            assert self._take(")"), "a bracket is not closed"
            return value
        kind, text = self.tokens[self.place]
        self.place += 1
        assert kind != "sign", f"{text} is out of place"
        return text[1:-1] if kind == "text" else self.look(f"{text}()" if kind == "call" else text)

    def _take(self, sign: str) -> bool:
        found = self.place < len(self.tokens) and self.tokens[self.place] == ("sign", sign)
        self.place += found
        return found


def evaluate(expression: str, look: Callable[[str], Value]) -> Value:
    """Return what an expression gives; names, and calls like `success()`, are looked up."""
    tokens = []
    place = 0
    text = expression.strip()
    while place < len(text):
        found = _TOKEN.match(text, place)
        assert found is not None and found.lastgroup is not None, f"{text!r} is not understood at {text[place:]!r}"
        tokens.append((found.lastgroup, found[found.lastgroup]))
        place = found.end()
    parser = _Parser(tokens, look)
    value = parser.either()
    assert parser.place == len(tokens), f"{text!r} goes on behind its end"
    return value


def interpolate(text: str, look: Callable[[str], Value]) -> str:
    """Return a text with each `${{ expression }}` replaced."""

    def put(found: re.Match[str]) -> str:
        value = evaluate(found[1], look)
        return str(value).lower() if isinstance(value, bool) else value

    return re.sub(r"\$\{\{(.+?)\}\}", put, text)


def holds(condition: str | None, look: Callable[[str], Value]) -> bool:
    """Return whether GitHub runs what has this `if`: without a word on states, only after success."""
    inside = re.sub(r"^\$\{\{(.*)\}\}$", r"\1", (condition or "success()").strip())
    if not any(f"{state}()" in inside for state in _STATES):
        inside = f"success() && ({inside})"
    return bool(evaluate(inside, look))
