"""Text for terminals, logs and pages: escape sequences and commands to CI runners are escaped, and credentials in URLs replaced."""

import re

_COLOR = re.compile(r"(\x1b\[[0-9;]*m)")

HIDDEN = "***@"
"""The replacement of the credentials in a URL."""

_AUTHORITY = re.compile(
    # Keys of object stores hold slashes that people forget to write as %2F, so all up to the last @ belongs to them.
    r"""\b(s3://)[^\s'"/@]*:[^\s'"]*@ | \b(s3://)[^\s'"/@]+@ | \b([a-z][a-z0-9+.-]*://)[^\s'"/@]*:[^\s'"/@]*@""",
    re.VERBOSE | re.IGNORECASE,
)
_SECRET = re.compile(
    r"""([?&][^=&\s'"]*(?:key|secret|token|password|signature|sig|credential)[^=&\s'"]*=)[^&\s'"]+""", re.IGNORECASE
)


def safe(text: str, *, colored: bool = False) -> str:
    """Return text with escapes as by `printable` and without credentials as by `redacted`."""
    return redacted(printable(text, colored=colored))


def printable(text: str, *, colored: bool = False) -> str:
    r"""Return text in which characters that control a terminal, and commands to GitHub's runner, are escaped; colors stay if `colored`."""
    parts = _COLOR.split(text) if colored else [text]
    whole = "".join(part if colored and place % 2 else _escaped(part) for place, part in enumerate(parts))
    # GitHub's runner takes for a command what begins a line, after any white space, and an older one anywhere in it.
    return re.sub(r"^(\s*)::", r"\1\\::", whole, flags=re.MULTILINE).replace("##[", r"#\u0023[")


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(letter if letter in "\n\t" or letter.isprintable() else f"\\u{ord(letter):04x}" for letter in text)


def redacted(text: str) -> str:
    """Return text whose URLs have no user with a password, no key of an object store and no secret parameter."""
    text = _AUTHORITY.sub(lambda found: f"{found[1] or found[2] or found[3]}{HIDDEN}", text)
    return _SECRET.sub(r"\1***", text)
