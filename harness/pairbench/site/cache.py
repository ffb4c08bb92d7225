"""The cache of a site: what each part of it was made from, so that only parts whose inputs changed are made again.

A part is the files of one operator or run, or the whole site. The cache lies in the site's folder and is safe to delete. Of each part
it has a digest of the inputs, the digests of the files, which are read again from the folder, and the values that other pages need of
it. Where the cache or a file is damaged, missing or made by other code, the part is made again.
"""

import contextlib
import functools
import hashlib
import importlib.metadata
import io
import pickle
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from pairbench.site.paths import File
from pairbench.store.files import write_whole
from pairbench.workflow.setup import catalogue_folder

CACHE = ".pairbench-site.cache"
_LIBRARIES = ("plotly", "jinja2", "numpy", "scipy")
_ROOMS = ("pairbench.model.", "pairbench.site.", "pairbench.stats")
_DIGEST = hashlib.sha256().digest_size


class _Cached(NamedTuple):
    inputs: str
    files: dict[str, str]  # the digest of each file's content, by its path
    values: Any


class _Values(pickle.Unpickler):
    """Reads nothing but values: of classes only those that pairbench declares by their fields, and no function is called."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "Counter"):
            return Counter
        found = super().find_class(module, name) if module.startswith(_ROOMS) else None
        declared = isinstance(found, type) and (is_dataclass(found) or issubclass(found, tuple | Enum))
        if not declared or not found.__module__.startswith(_ROOMS):
            raise pickle.UnpicklingError(f"{module}.{name} is no value of a site")
        return found


class SiteCache:
    def __init__(self, folder: Path) -> None:
        """Read the cache of a folder, which is empty unless it was made by the same code."""
        self._folder = folder
        self._made_with = digest(code_digest())
        self._before: dict[str, _Cached] = {}
        self._now: dict[str, _Cached] = {}
        self._unchanged: list[File] = []
        with contextlib.suppress(Exception):  # an unpickler raises whatever bytes make it raise
            content = (folder / CACHE).read_bytes()
            if hashlib.sha256(content[_DIGEST:]).digest() == content[:_DIGEST]:
                earlier, parts = _Values(io.BytesIO(content[_DIGEST:])).load()
                self._before = parts if earlier == self._made_with else {}

    def values(self, name: str) -> Any:
        """Return the values of a part, whatever its inputs were; None where it is not in the cache."""
        return self._before[name].values if name in self._before else None

    def find(self, name: str, inputs: str) -> Any:
        part = self._before.get(name)
        if part is None or part.inputs != inputs:
            return None
        try:
            found = [File(path=path, content=(self._folder / path).read_bytes()) for path in part.files]
        except OSError:
            return None
        if any(_sha(file.content) != part.files[file.path] for file in found):
            return None
        self._unchanged += found
        self._now[name] = part
        return part.values

    def put(self, name: str, inputs: str, values: Any, files: Iterable[File]) -> Iterator[File]:
        """Yield the files of a part that was made, and put the part into the cache."""
        digests = {}
        for file in files:
            digests[file.path] = _sha(file.content)
            yield file
        self._now[name] = _Cached(inputs, digests, values)

    def unchanged(self) -> Iterator[File]:
        """Yield the files of the parts that were found since the last call."""
        while self._unchanged:
            yield self._unchanged.pop()

    def save(self) -> None:
        if self._now != self._before:
            content = pickle.dumps((self._made_with, self._now))
            with contextlib.suppress(OSError):  # the site is written, and without a cache it is made anew
                write_whole(self._folder / CACHE, hashlib.sha256(content).digest() + content, durable=False)


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def digest(*inputs: object) -> str:
    """Return a digest of values by their texts, which have to hold all that is in them."""
    return _sha(repr(inputs).encode(errors="surrogatepass"))


@functools.cache
def code_digest() -> str:
    """Return a digest of all that makes a site but its store: pairbench's files and the libraries that draw."""
    # In a checkout of pairbench the site lies in `dashboards`, too, by default.
    dashboards = catalogue_folder("dashboards")
    folders = (Path(__file__).parents[1], dashboards / "templates", dashboards / "assets")
    files = sorted(path for folder in folders for path in folder.rglob("*.*") if "__pycache__" not in path.parts)
    stats = [(str(path), status.st_size, status.st_mtime_ns) for path in files if (status := path.stat())]
    return digest(stats, sys.version, [importlib.metadata.version(name) for name in _LIBRARIES])
