"""Where suites are: those of the settings, the files here, and the catalogue that comes with pairbench; how records name them."""

from pathlib import Path

from pairbench.config import Config
from pairbench.errors import SuiteError
from pairbench.model.plain import whole_text
from pairbench.suite.load import find_suites, moved_suites


def default_suites(config: Config) -> tuple[Path, ...]:
    """Return the suite files that are meant when no SELECT argument names a file.

    Raises:
        SuiteError: there is none in the current folder, where the settings name no other.
    """
    files = find_suites(default_places(config))
    if not files and config.suites is None:
        raise SuiteError(
            f"no suite here: no *.py file in {Path.cwd()}, or below, declares an Operator; name a file or folder of suites, "
            "or take the pairs that come with pairbench by --catalogue"
        )
    return files


def default_places(config: Config) -> tuple[Path, ...]:
    """Return the files and folders in which suites are looked for when no SELECT argument names a file."""
    if config.catalogue:
        return (catalogue_folder("suites"),)
    if config.suites is not None:
        return tuple(config.root / place for place in config.suites)
    return (Path.cwd(),)


def moved_names(config: Config) -> dict[str, str]:
    """Return where suites are now, by their old names: the catalogue's, unless the settings name suites of a project's own.

    Raises:
        SuiteError: a `moved.toml` is wrong.
    """
    own = config.suites is not None and not config.catalogue
    return moved_suites(default_places(config) if own else (catalogue_folder("suites"),))


def moved_here(config: Config) -> dict[str, str]:
    """Return where suites are now, by their old names, without names that a file here has: that one is the user's own."""
    return {old: new for old, new in moved_names(config).items() if not (config.root / old).exists()}


def catalogue_folder(name: str) -> Path:
    """Return the folder `suites` or `dashboards` that comes with pairbench: in the wheel, or in the checkout that it runs from."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "_catalogue" / name
    return installed if installed.is_dir() else package.parents[1] / name


def shown(file: Path, config: Config) -> str:
    """Return how records name a suite: the same wherever the checkout lies, pairbench is installed or a user stands."""
    path, catalogue = file.resolve(), catalogue_folder("suites")
    if config.written is not None and path.is_relative_to(config.written.resolve()):
        return path.relative_to(
            config.written.resolve()
        ).as_posix()  # its folder is gone, and another one, with the next call
    if path.is_relative_to(catalogue):
        return f"suites/{path.relative_to(catalogue).as_posix()}"
    root = config.root.resolve()
    return whole_text(path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path))
