"""The charts: what a point says under the pointer, where a click leads, and what can be toggled."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from pairbench.report import units
from pairbench.store.reader import read_records
from tests.builders import run_id_of, sha
from tests.site.conftest import Browse, Site
from tests.site.kinds import EVENTFUL, OPERATOR
from tests.site.stores import RMS, RUNS, STEP
from tests.site.watch import Opener

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def chart(page: Page, name: str) -> Locator:
    node = page.locator(f".chart[data-chart={name}]")
    expect(node.locator(".main-svg").first).to_be_visible()
    return node


def trace(page: Page, name: str, label: str) -> Locator:
    node = chart(page, name)
    place = node.evaluate("(node, label) => node._fullData.findIndex((one) => one.name === label)", label)
    uid = node.evaluate("(node, place) => node._fullData[place].uid", place)
    return node.locator(f"g.trace{uid}").locator("path.point")


def at(points: Locator, number: int) -> tuple[float, float]:
    """Return where a point is, after it was brought into view."""
    point = points.nth(number)
    point.scroll_into_view_if_needed()
    box = point.bounding_box()
    assert box
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def beside(page: Page, name: str, points: Locator, number: int) -> Locator:
    """Move the pointer onto a point, and return what then stands beside it."""
    x, y = at(points, number)
    page.mouse.move(x - 3, y)
    page.mouse.move(x, y)
    return chart(page, name).locator(".hoverlayer .hovertext").first


def layout(node: Locator, path: str) -> Any:
    return node.evaluate("(node, path) => path.split('.').reduce((value, name) => value[name], node._fullLayout)", path)


def test_a_point_says_its_commit_and_value(look: Opener, eventful: Site) -> None:
    page = look(OPERATOR)
    page.get_by_role("combobox", name="Case").select_option("tokens=1024")
    points = trace(page, "trend", "P50, 95 % interval")
    expect(points).to_have_count(RUNS)
    for number in (0, STEP, RUNS - 1):
        run_id = run_id_of(24 * number)
        records = read_records(str(eventful.store), [run_id])[0]
        control, record = (
            next(one for one in records if (one.case, one.implementation) == (RMS[0], name))
            for name in ("baseline", "fused")
        )
        said = beside(page, "trend", points, number)
        for text in (run_id, sha(24 * number)[:7], units.duration(record.device_p50_ns), units.ratio(record.speedup)):
            expect(said).to_contain_text(text)
        assert ("+10.1" in (said.text_content() or "")) == (number == STEP)
    controls = trace(page, "trend", "control: baseline")
    expect(controls).to_have_count(RUNS)
    expect(beside(page, "trend", controls, RUNS - 1)).to_contain_text(units.duration(control.device_p50_ns))


def test_a_click_on_a_point_leads_to_its_run(look: Opener) -> None:
    page = look(OPERATOR)
    x, y = at(trace(page, "trend", "P50, 95 % interval"), 7)
    page.mouse.move(x, y)
    # A click counts for the point that the chart has found below the mouse, which takes a while where the host is busy.
    expect(chart(page, "trend").locator(".hoverlayer .hovertext").first).to_be_visible()
    page.mouse.click(x, y)
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Run {run_id_of(24 * 7)}")


def test_what_changed_is_marked_by_a_line_with_words(look: Opener) -> None:
    page = look(OPERATOR)
    page.get_by_role("combobox", name="Case").select_option("tokens=1024")
    notes = chart(page, "trend").locator(".annotation")
    expect(notes.filter(has_text="driver 580.1 -> 580.2")).to_be_visible()
    expect(notes.filter(has_text=re.compile(r"\+10\.1"))).to_be_visible()
    assert chart(page, "trend").locator(".shapelayer path").count() >= 2


def test_a_point_of_the_speedup_says_whether_it_loses_and_chooses(look: Opener) -> None:
    page = look(OPERATOR)
    points = trace(page, "speedup", "naive")
    expect(points).to_have_count(2)
    expect(beside(page, "speedup", points, 0)).to_contain_text("slower than the baseline")
    shapes = {name: trace(page, "speedup", name).first.get_attribute("d") for name in ("naive", "fused")}
    assert shapes["naive"] != shapes["fused"], "told by shape, not only by colour"
    page.mouse.click(*at(points, 0))
    expect(page.locator("#chosen")).to_have_text(RMS[0])
    expect(
        page.locator("#choose").get_by_role("combobox", name="Implementation").locator("option:checked")
    ).to_have_text("naive")


def test_linear_and_logarithmic(look: Opener) -> None:
    page = look(OPERATOR)
    for name, axis in (("trend", "yaxis"), ("speedup", "xaxis"), ("ecdf", "xaxis")):
        node = chart(page, name)
        button = page.locator(f"button[data-of={name}]").filter(has_text="Logarithmic")
        expect(button).to_have_attribute("aria-pressed", "false")
        assert layout(node, f"{axis}.type") == "linear"
        for pressed, kind in (("true", "log"), ("false", "linear")):
            button.click()
            expect(button).to_have_attribute("aria-pressed", pressed)
            assert layout(node, f"{axis}.type") == kind


def test_a_bar_says_the_time_of_its_kernel_or_its_share_of_the_call(look: Opener) -> None:
    page = look(OPERATOR)
    node = chart(page, "kernels")
    expect(node.locator(".bartext").first).to_have_text(re.compile(r"^#\d \d+(\.\d+)? us$"))
    title = layout(node, "xaxis.title.text")
    button = page.get_by_role("button", name="Share of the call")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")
    assert layout(node, "xaxis.title.text") != title


def test_dots_of_small_lines_are_round(browse: Browse, eventful: Site) -> None:
    page = browse(eventful)(EVENTFUL["overview"])
    style = page.locator(".spark .dot").first.evaluate(
        "node => [getComputedStyle(node).vectorEffect, getComputedStyle(node).strokeLinecap]"
    )
    assert style == ["non-scaling-stroke", "round"], "a stroke is not stretched with its picture"


def test_a_series_can_be_put_away_in_the_legend(look: Opener) -> None:
    page = look(OPERATOR)
    node = chart(page, "trend")
    drawn = node.locator("g.scatterlayer g.trace")
    before = drawn.count()
    item = node.locator(".legend .traces").filter(has_text="P95").locator(".legendtoggle")
    item.click()
    expect(drawn).to_have_count(before - 1)
    item.click()
    expect(drawn).to_have_count(before)


def test_zoom_and_back(look: Opener) -> None:
    page = look(OPERATOR)
    node = chart(page, "trend")
    whole = layout(node, "xaxis.range")
    points = trace(page, "trend", "P50, 95 % interval")
    start, stop = at(points, 5), at(points, 15)
    page.mouse.move(start[0], start[1] - 15)
    page.mouse.down()
    page.mouse.move(stop[0], stop[1] - 15, steps=8)
    page.mouse.up()
    page.wait_for_function("node => node._fullLayout.xaxis.range[0] > 3", arg=node.element_handle())
    low, high = layout(node, "xaxis.range")
    assert whole[0] < low < high < whole[1]
    page.locator("button[data-of=trend]").filter(has_text="Whole chart").click()
    page.wait_for_function("node => node._fullLayout.xaxis.range[0] < 1", arg=node.element_handle())
    assert layout(node, "xaxis.range")[1] > RUNS - 2


def test_dark_and_light(look: Opener) -> None:
    page = look(OPERATOR)
    ground = "() => getComputedStyle(document.body).backgroundColor"
    node = chart(page, "trend")
    light, ink = page.evaluate(ground), layout(node, "font.color")
    page.get_by_role("button", name="Dark colours").click()
    assert page.evaluate(ground) != light
    assert layout(node, "font.color") != ink, "charts follow"
    expect(page.get_by_role("button", name="Light colours")).to_be_visible()
    page.reload()
    assert page.evaluate(ground) != light
    page.goto(page.url.partition("/operators/")[0] + f"/{EVENTFUL['runs']}")
    assert page.evaluate(ground) != light
    page.get_by_role("button", name="Light colours").click()
    assert page.evaluate(ground) == light


def test_a_chart_can_be_saved_as_a_picture(look: Opener) -> None:
    page = look(OPERATOR)
    node = chart(page, "speedup")
    bar = node.locator(".modebar-group")
    expect(bar).to_have_css("opacity", "0")
    node.hover()
    expect(bar).to_have_css("opacity", "1")
    with page.expect_download() as download:
        node.get_by_role("button", name="Download plot").click()
    assert download.value.suggested_filename == f"{Path(OPERATOR).stem}-speedup.svg"
    picture = download.value.path().read_text()
    assert "<svg" in picture
    assert "speedup over the baseline" in " ".join(ET.fromstring(picture).itertext())


@pytest.mark.parametrize("width", [375, 1440])
def test_labels_of_roofs_are_whole_and_the_button_that_saves_a_chart_covers_nothing_and_is_not_printed(
    browse: Browse, eventful: Site, width: int
) -> None:
    page = browse(eventful, viewport={"width": width, "height": 900})(OPERATOR)
    page.evaluate("() => window.dispatchEvent(new Event('beforeprint'))")
    roofline = chart(page, "roofline")
    around = roofline.bounding_box()
    assert around is not None
    for label in roofline.locator(".annotation-text-g text").all():
        box = label.bounding_box()
        assert box is not None
        assert around["x"] <= box["x"] and box["x"] + box["width"] <= around["x"] + around["width"]
    for name in ("speedup", "roofline", "trend", "ecdf", "kernels"):
        node = chart(page, name)
        around, button = node.bounding_box(), node.locator(".modebar").bounding_box()
        drawn = node.locator(".main-svg").first.bounding_box()
        assert around is not None and button is not None and drawn is not None
        assert around["y"] <= button["y"] and button["y"] + button["height"] <= drawn["y"]
    page.emulate_media(media="print")
    expect(page.locator(".modebar:visible")).to_have_count(0)


def test_charts_say_in_words_what_they_show(look: Opener) -> None:
    page = look(OPERATOR)
    for name, words in (("Speedup over the cases", "proven faster"), ("Trend", "30 runs"), ("Samples of", "Medians")):
        expect(page.get_by_role("figure", name=re.compile(f"^{name}.*{words}"))).to_be_visible()
