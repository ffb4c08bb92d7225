"""Files that a user asks for with `--output`."""

from pathlib import Path

from pairbench.errors import UsageError


def write_text(target: Path, text: str) -> None:
    """Write a file.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"--output {str(target)!r} cannot be written: {error.strerror}; expected a file in a folder that is there"
        ) from error
