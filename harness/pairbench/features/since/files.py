"""Which suites a commit's files differ for: git says what differs, import statements say who uses it, and nothing is run."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pairbench.errors import UsageError
from pairbench.suite.load import declares_operators
from pairbench.suite.reached import SOURCES, reached_files, sources_beside
from pairbench.workflow.git.repository import git, run_git
from pairbench.workflow.git.worktrees import repository_of, resolve


@dataclass(frozen=True, kw_only=True)
class TouchedSuite:
    """A suite of whose files some differ."""

    suite: str
    """How records name it."""
    file: Path
    was: Path | None
    """Path of the file in the commit; None where it is new."""
    unhashed: tuple[str, ...]
    """The files that differ and that no hash covers, so that they may concern every operator of the suite."""


@dataclass(frozen=True, kw_only=True)
class FilesSince:
    """How the files of a checkout, as they stand, differ from those of a commit."""

    repository: Path
    sha: str
    there: frozenset[Path]
    """The files of the commit."""
    differing: frozenset[Path]
    """Files of the commit that are others now, or gone."""

    @classmethod
    def of(cls, suites: tuple[tuple[str, Path], ...], ref: str, start: Path) -> "FilesSince":
        """Ask git what differs from the commit."""
        why = f"--changed-since compares them with commit {ref!r}"
        files = [file for _, file in suites]
        repository = repository_of(files[0].parent if files else start, why)
        outside = next((file for file in files if not file.is_relative_to(repository)), None)
        if outside is not None:
            raise UsageError(
                f"suite {str(outside)!r} is outside of the repository {repository}, expected all suites in one: {why}; "
                "name suites of one repository"
            )
        sha = resolve(repository, ref)
        # Not by `git diff` alone: a file that git does not track, or ignores, is none of the commit's.
        there = _paths(repository, run_git(repository, "ls-tree", "-r", "-z", "--full-tree", "--name-only", sha))
        listed = run_git(repository, "diff", "--name-only", "-z", "--no-renames", "--no-ext-diff", sha, "--")
        return cls(
            repository=repository,
            sha=sha,
            there=frozenset(there),
            differing=frozenset(_paths(repository, listed) & there),
        )

    def touched(self, suites: tuple[tuple[str, Path], ...], olds: dict[Path, Path]) -> Iterator[TouchedSuite]:
        """Yield the suites of whose files some differ."""
        for suite, file in suites:
            old = olds.get(file)
            was = next((path for path in (file, old) if path in self.there), None)
            reached = reached_files(file, self.repository)
            folders = {path.parent for path in reached.tree}
            sources = {path for path in self.differing if path.suffix in SOURCES and path.parent in folders}
            sources |= sources_beside(reached.tree) - self.there
            unhashed = sorted(path for path in {*reached.packages, *sources} if self._differs(path))
            if was is None or was != file or unhashed or any(map(self._differs, reached.tree)):
                names = tuple(path.relative_to(self.repository).as_posix() for path in unhashed)
                yield TouchedSuite(suite=suite, file=file, was=was, unhashed=names)

    def _differs(self, path: Path) -> bool:
        return path in self.differing or path not in self.there

    def gone(self, places: tuple[Path, ...], olds: dict[Path, Path]) -> Iterator[Path]:
        """Yield the suites of the commit that are not there any more, among files and folders."""
        for path in sorted(self.differing):
            inside = any(path.is_relative_to(place) for place in places)
            if path.suffix == ".py" and inside and not path.exists() and path not in olds.values():
                text = git(self.repository, "show", f"{self.sha}:{path.relative_to(self.repository).as_posix()}") or ""
                if declares_operators(text):
                    yield path


def _paths(repository: Path, listed: str) -> set[Path]:
    return {repository / name for name in listed.split("\0") if name}
