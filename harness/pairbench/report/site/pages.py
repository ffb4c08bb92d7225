"""Templates become pages: one environment for all of them, and the values that every page has."""

import re
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined

from pairbench import __version__
from pairbench.model.site import STATES, SiteFacts
from pairbench.report import units
from pairbench.report.site import links, paths, words
from pairbench.report.site.values import File


def _unindented(templates: Path, name: str) -> str | None:
    """Return a template without the indentation that only its authors need: it would be a twentieth of each page."""
    try:
        source = (templates / name).read_text(encoding="utf-8")
    except OSError:
        return None
    return re.sub(r"(?m)^[ \t]+", "", source)


def environment(templates: Path) -> Environment:
    """Return the environment that renders the templates of a folder; unknown names fail, and all text is escaped."""
    made = Environment(
        loader=FunctionLoader(lambda name: _unindented(templates, name)),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
    )
    made.filters.update(words.FILTERS)
    made.globals.update(
        {
            "STATES": STATES,
            "MEANINGS": words.MEANINGS,
            "anchor": paths.anchor,
            "breakdown_page": paths.breakdown_page,
            "commit_url": links.commit_url,
            "operator_page": paths.operator_page,
            "paths": paths,
            "pull_request_url": links.pull_request_url,
            "range_url": links.range_url,
            "run_key": paths.run_key,
            "run_page": paths.run_page,
            "source_url": links.source_url,
            "units": units,
            "version": __version__,
        }
    )
    return made


def operators_of(facts: SiteFacts) -> set[tuple[str, str, str]]:
    """Return device model, suite and operator of all that have a page."""
    return {(row.device_name, row.suite, row.operator) for row in facts.rows}


def render(env: Environment, template: str, path: str, facts: SiteFacts, **values: Any) -> File:
    """Return a page.

    Args:
        env: that `environment` made.
        template: its name.
        path: of the page in the site; `root` in the template is the way from there to the site's folder.
        facts: what every page knows; `there` in the template is the operators that have a page.
        values: what this page shows.
    """
    there = operators_of(facts)
    text = env.get_template(template).render(
        facts=facts, page=path, root=paths.relative(path, ""), there=there, **values
    )
    # Half of a surrogate pair can't be written; what holds one is still shown.
    return File(path=path, content=text.encode("utf-8", "replace"))
