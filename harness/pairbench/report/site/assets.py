"""Files that the pages share: our sheets and scripts, and the one script that draws charts."""

from collections.abc import Iterator
from pathlib import Path

from pairbench.report.site.payload import packed
from pairbench.report.site.values import File

PLOTLY = "assets/plotly.packed.js"


def assets(folder: Path) -> Iterator[File]:
    """Yield our files of a folder, and Plotly's script out of the installed package, the same for every site."""
    from plotly.offline import get_plotlyjs

    for file in sorted(folder.iterdir()):
        if file.suffix in (".css", ".js", ".svg"):
            yield File(path=f"assets/{file.name}", content=file.read_bytes())
    # Packed: as it is, it is a third of a site.
    yield File(path=PLOTLY, content=b'pairbench.packed("plotly", "%s");\n' % packed(get_plotlyjs().encode()))
