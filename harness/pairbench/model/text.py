"""Text that leaves the process, on a terminal, in a log or on a page: without what commands a terminal, and without credentials."""

import re

_COMMAND = re.compile(r"^(\s*)::", re.MULTILINE)
"""How a line begins that GitHub takes for a command to the runner, whatever stands before it is white."""
_OLD_COMMAND = "##["
"""What begins one of the older commands, anywhere in a line."""
_COLOR = re.compile(r"(\x1b\[[0-9;]*m)")

HIDDEN = "***@"
"""What stands in a URL for its credentials."""

_AUTHORITY = re.compile(
    # Keys of object stores hold slashes that people forget to write as %2F, so all up to the last @ belongs to them.
    r"""\b(s3://)[^\s'"/@]*:[^\s'"]*@ | \b(s3://)[^\s'"/@]+@ | \b([a-z][a-z0-9+.-]*://)[^\s'"/@]*:[^\s'"/@]*@""",
    re.VERBOSE | re.IGNORECASE,
)
_SECRET = re.compile(
    r"""([?&][^=&\s'"]*(?:key|secret|token|password|signature|sig|credential)[^=&\s'"]*=)[^&\s'"]+""", re.IGNORECASE
)


def safe(text: str, *, colored: bool = False) -> str:
    """Return text as it may leave the process. See `printable` and `redacted`."""
    return redacted(printable(text, colored=colored))


def printable(text: str, *, colored: bool = False) -> str:
    r"""Return text without characters that command a terminal, and without lines that command GitHub's runner: these as escapes."""
    parts = _COLOR.split(text) if colored else [text]
    whole = "".join(part if colored and place % 2 else _escaped(part) for place, part in enumerate(parts))
    return _COMMAND.sub(r"\1\\::", whole).replace(_OLD_COMMAND, r"#\u0023[")


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(letter if letter in "\n\t" or letter.isprintable() else f"\\u{ord(letter):04x}" for letter in text)


def redacted(text: str) -> str:
    """Return text whose URLs have no credentials: no user with a password, no key of an object store, no secret among the parameters."""
    text = _AUTHORITY.sub(lambda found: f"{found[1] or found[2] or found[3]}{HIDDEN}", text)
    return _SECRET.sub(r"\1***", text)
