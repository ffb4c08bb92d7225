"""Files of a chart along an axis: a picture, or a page with its table."""

from html import escape

from pairbench.report import units
from pairbench.report.axis_chart import AxisChart, chart_rows, crossover_sentences
from pairbench.report.figures import draw_axis, to_bytes

_TABLE_STYLE = "table { border-collapse: collapse; } th, td { padding: 0.2em 0.8em; text-align: right; } th { border-bottom: 1px solid #444; }"


def axis_bytes(chart: AxisChart, suffix: str, *, paper: bool = False) -> bytes:
    """Return a chart as a file of one of `axis_chart.SUFFIXES`."""
    if suffix != ".html":
        return to_bytes(draw_axis(chart, paper=paper), suffix)
    rows = chart_rows(chart)
    names = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(_cell(row.get(name)))}</td>' for name in names)}</tr>\n" for row in rows
    )
    sentences = "".join(f"<p>{escape(sentence)}.</p>\n" for sentence in crossover_sentences(chart))
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(chart.title)}</title>\n'
        f"<style>body {{ font: 14px sans-serif; margin: 2em; }} {_TABLE_STYLE}</style>\n</head>\n<body>\n"
        f"{svg_element(chart)}\n{sentences}<p>{escape(chart.y)}</p>\n<table>\n<thead><tr>{head}</tr></thead>\n"
        f"<tbody>\n{body}</tbody>\n</table>\n</body>\n</html>\n"
    ).encode()


def svg_element(chart: AxisChart) -> str:
    """Return a chart as an element for a page, without the head of a file."""
    text = to_bytes(draw_axis(chart), ".svg").decode()
    return text[text.index("<svg") :]


def _cell(value: object) -> str:
    return "" if value is None else units.significant(value) if isinstance(value, float) else str(value)
