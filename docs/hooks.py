"""What MkDocs does beside its own work: pages that stand elsewhere in the repository, links between all of them, and a check of the built site."""

import html.parser
import posixpath
import re
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
ELSEWHERE = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "results/README.md": "columns.md",
    "results/reference/README.md": "measurements/reference-runs.md",
    "suites/README.md": "suites.md",
    "suites/RESULTS.md": "results.md",
    "suites/examples/silu.py": "example.md",
    **{f"dashboards/pictures/{name}.png": f"pictures/{name}.png" for name in ("operator", "overview")},
    "tests/fleet/README.md": "measurements/fleet.md",
    **{
        f"tests/lab/{room}/README.md": f"measurements/{room}.md"
        for room in ("bisect", "detectors", "faults", "gate", "workers")
    },
}
"""Pages and pictures of the site that the repository keeps in another folder, by their paths in the repository."""

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_OPERATOR = re.compile(r"^\| ((?:\\_|[\w.-])+) \| (?=\d+ \|)", re.MULTILINE)


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages that stand elsewhere, and those of `pairbench results`."""
    pages = {place.relative_to(ROOT).as_posix(): f"results/{place.name}" for place in ROOT.glob("build/results/*.md")}
    if not pages:
        raise PluginError("build/results has no pages; `nox -s docs` makes them")
    for path, page in {**pages, **ELSEWHERE}.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Turn links between files of the repository into links between pages of the site."""
    source = Path(str(page.file.abs_src_path)).relative_to(ROOT)

    def link(match: re.Match[str]) -> str:
        picture, words, target = match.groups()
        path, _, anchor = target.partition("#")
        if not path or ":" in path:
            return match[0]
        place = posixpath.normpath(posixpath.join(source.parent.as_posix(), path))
        named = ELSEWHERE.get(place) or (place.removeprefix("docs/") if place.startswith("docs/") else None)
        if named is None:
            if not (ROOT / place).exists():
                raise PluginError(f"{source}: the link to {target} leads nowhere")
            # A file of the repository that is no page of the site.
            return f"`{place}`" if words.strip("`") == place else f"{words} (`{place}`)"
        here = posixpath.relpath(named, posixpath.dirname(page.file.src_uri) or ".")
        return f"{picture}[{words}]({here}{'#' if anchor else ''}{anchor})"

    if source.suffix == ".py":
        return f"# {source}\n\n```python\n{markdown}```\n"
    if page.file.src_uri == "results.md":
        return _OPERATOR.sub(lambda row: f"| [{row[1]}](results/{row[1].replace(chr(92), '')}.md) | ", markdown)
    # Python-Markdown reads Markdown in a tag only where it is told to.
    return _LINK.sub(link, markdown.replace("<details>", '<details markdown="1">'))


class _Links(html.parser.HTMLParser):
    """What a page loads and links, and the anchors that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        loaded = given.get("src") or (given.get("href") if tag == "link" and given.get("rel") != "canonical" else None)
        if loaded:
            self.loads.append(loaded)
        if tag == "a" and given.get("href"):
            self.links.append(str(given["href"]))


def on_post_build(*, config: Any) -> None:
    """Refuse a site that loads anything from elsewhere, or links a file that is not there. MkDocs checks the anchors.

    404.html is left out: its paths begin at the root of a server.

    Raises:
        PluginError: with all that is wrong.
    """
    site = Path(config["site_dir"])
    wrong = [fault for page in sorted(site.rglob("*.html")) if page.name != "404.html" for fault in _faults(page, site)]
    for style in site.rglob("*.css"):
        loaded = re.findall(r"url\(['\"]?((?:https?:)?//[^)]*)", style.read_text(encoding="utf-8"))
        wrong += [f"{style.relative_to(site)} loads {address}" for address in loaded]
    if wrong:
        raise PluginError("\n".join(wrong))


def _faults(page: Path, site: Path) -> Iterator[str]:
    """Yield what is wrong with a page: what it loads from elsewhere, and what it links that is not there."""
    found = _Links()
    found.feed(page.read_text(encoding="utf-8"))
    for target in (*found.loads, *found.links):
        address = urllib.parse.urlsplit(target)
        if address.netloc and target in found.loads:
            yield f"{page.relative_to(site)} loads {target}"
        local = address.path and not address.scheme and not address.netloc
        if local and not (page.parent / urllib.parse.unquote(address.path)).exists():
            yield f"{page.relative_to(site)} links {target}, which is not there"
