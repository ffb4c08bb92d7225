"""Files that a user asks for with `--output`."""

from pathlib import Path

from pairbench.errors import UsageError


def write_text(target: Path, text: str, *, make_folder: bool = False) -> None:
    """Write a file.

    Args:
        target: The file.
        text: Its content.
        make_folder: Whether to make the folder where there is none.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        if make_folder:
            target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"--output {str(target)!r} cannot be written: {error.strerror or error}; expected a file in a folder that is there"
        ) from error
