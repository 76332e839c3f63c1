"""The report in a browser: from disk alone, on a phone, in the dark, on paper, by keyboard, for a screen reader."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from assay.core.report import write_report
from assay.core.report.pages import page_name
from tests.core.sample_ledger import CARD, PLUGIN, STUDY, USER_ARM, fill_ledger

CHROMIUM = Path("/usr/bin/chromium")
SWITCHES = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
)
PAGES = ("index.html", "trees.html", page_name(PLUGIN))
AA = 4.5
"""The contrast that WCAG 2 asks of text (level AA)."""

CONTRASTS = """() => {
  const channel = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const colour = (text) => text.match(/[\\d.]+/g).map(Number);
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const found = colour(getComputedStyle(one).backgroundColor);
      if (found.length < 4 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  const bad = {};
  let count = 0;
  for (const element of document.querySelectorAll("body *")) {
    const words = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!words || !element.checkVisibility() || element.closest("script, style, desc, title")) continue;
    const style = getComputedStyle(element);
    const front = colour(element.closest("svg") ? style.fill : style.color);
    const grounds = [behind(element)];
    const region = element.closest("svg")?.querySelector("rect.claimed");
    if (region) grounds.push(colour(getComputedStyle(region).fill));
    for (const ground of grounds) {
      const [a, b] = [light(front), light(ground)].sort((x, y) => y - x);
      const ratio = (a + 0.05) / (b + 0.05);
      count += 1;
      if (ratio < LIMIT) bad[`${element.tagName}.${element.getAttribute("class")}`] = ratio;
    }
  }
  return [count, bad];
}""".replace("LIMIT", str(AA))

NAMELESS = """() => {
  const text = (id) => document.getElementById(id)?.textContent.trim() ?? "";
  const name = (one) => (one.getAttribute("aria-labelledby") ?? "").split(" ").map(text).join(" ").trim()
    || one.getAttribute("aria-label") || one.getAttribute("alt") || one.textContent.trim()
    || one.querySelector("img[alt]")?.alt || [...(one.labels ?? [])].map((label) => label.textContent.trim()).join(" ");
  const kinds = "img, [role=img], svg, a, button, input, select, audio, video, summary, nav, form";
  return [...document.querySelectorAll(kinds)]
    .filter((one) => !one.closest("[aria-hidden=true]") && !name(one)).map((one) => one.outerHTML.slice(0, 120));
}"""


@dataclass
class Opened:
    """A page with what the browser said of it."""

    page: Any
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


Open = Callable[..., Opened]


def unavailable(reason: str) -> None:
    """Skip, except where the project's own checks run: there the browser must be present."""
    if os.environ.get("CI"):
        pytest.fail(f"the report can't be tested in a browser: {reason}")
    pytest.skip(f"the report isn't tested in a browser: {reason}")


def test_missing_browser_is_a_failure_in_the_projects_own_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="isn't tested in a browser: no chromium"):
        unavailable("no chromium")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="can't be tested in a browser: no chromium"):
        unavailable("no chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if not CHROMIUM.exists():
        unavailable(f"{CHROMIUM} is missing")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        unavailable("the package playwright is missing")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=str(CHROMIUM), args=list(SWITCHES))
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browsed")
    ledger = fill_ledger(folder / "ledger")
    return write_report(ledger, folder / "site", cards={"trees": CARD}, studies={"trees": STUDY}).parent


@pytest.fixture
def opened(browser: Any, site: Path) -> Iterator[Open]:
    contexts = []

    def open_(name: str, *, width: int = 1200, scheme: str = "light", **options: Any) -> Opened:
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, **options)
        contexts.append(context)
        result = Opened(context.new_page())
        result.page.on("console", lambda message: result.messages.append(message.text))
        result.page.on("pageerror", lambda error: result.messages.append(str(error)))
        result.page.on("request", lambda request: result.requests.append(request.url))
        result.page.goto((site / name).as_uri())
        return result

    yield open_
    for context in contexts:
        context.close()


@pytest.mark.parametrize("name", PAGES)
def test_page_opens_from_disk_without_a_network_and_without_complaints(opened: Open, site: Path, name: str) -> None:
    view = opened(name)
    view.page.evaluate("""async () => {
      for (let y = 0; y < document.body.scrollHeight; y += 400) {
        scrollTo(0, y);
        await new Promise(requestAnimationFrame);
      }
    }""")
    view.page.wait_for_load_state("networkidle")
    assert view.messages == []
    assert view.requests[0] == (site / name).as_uri()
    assert [url for url in view.requests if not url.startswith((f"{site.as_uri()}/", "data:"))] == []
    broken = "() => [...document.images].filter((one) => !(one.complete && one.naturalWidth)).map((one) => one.src)"
    assert view.page.evaluate(broken) == []


def test_every_link_leads_somewhere(opened: Open, site: Path) -> None:
    views = {(site / name).as_uri(): opened(name).page for name in PAGES}
    followed = 0
    for page in views.values():
        parts = "[one.protocol, one.href.split('#')[0], decodeURIComponent(one.hash)]"
        for protocol, address, anchor in page.evaluate(f"() => [...document.links].map((one) => {parts})"):
            if protocol == "https:":
                continue
            assert protocol == "file:"
            assert Path(unquote(urlsplit(address).path)).is_file()
            if anchor:
                assert views[address].evaluate("(id) => !!document.getElementById(id)", anchor[1:]), (address, anchor)
            followed += 1
    assert followed > 40


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [320, 360, 768])
def test_nothing_runs_over_the_side_of_a_phone(opened: Open, name: str, width: int) -> None:
    page = opened(name, width=width).page
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.evaluate("() => document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_charts_text_is_readable_on_a_phone(opened: Open) -> None:
    page = opened("trees.html", width=360).page
    widths = "() => [...document.querySelectorAll('.assay-chart')].map((one) => one.getBoundingClientRect().width)"
    assert min(page.evaluate(widths)) / 360 * 12 >= 9  # pixels of a font of 12 units


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_the_contrast_of_level_aa(opened: Open, name: str, scheme: str) -> None:
    count, bad = opened(name, scheme=scheme).page.evaluate(CONTRASTS)
    assert count > 20
    assert bad == {}


def test_dark_mode_turns_ground_and_charts_over(opened: Open) -> None:
    ground = "() => getComputedStyle(document.body).backgroundColor"
    ink = "() => getComputedStyle(document.querySelector('.assay-chart text')).fill"
    light, dark = opened("trees.html").page, opened("trees.html", scheme="dark").page
    brightness = [
        sum(map(int, re.findall(r"\d+", page.evaluate(script)))) for page in (light, dark) for script in (ground, ink)
    ]
    assert brightness[0] > 700 > 150 > brightness[1]
    assert brightness[2] < 150 < 600 < brightness[3]


def test_keyboard_reaches_content_filter_and_links_and_leaves_them(opened: Open) -> None:
    page = opened("index.html").page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    box = page.locator(".skip").bounding_box()
    assert box["y"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "only-holds"
    style = "() => getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(style) != "none"
    page.keyboard.press("Space")
    assert page.locator("#shown").inner_text() == "6 of 9 claims shown"
    seen = []
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.tagName + document.activeElement.textContent.slice(0, 12)"))
        if seen[-1].startswith("BODY"):
            break
    assert seen[-1].startswith("BODY"), "the focus is trapped"
    assert "Atrees" in seen


def test_filter_hides_claims_by_verdict_and_method(opened: Open) -> None:
    page = opened("index.html").page
    visible = """() => [...document.querySelectorAll("[data-verdict]")]
      .filter((one) => one.checkVisibility()).map((one) => one.dataset.verdict)"""
    everything = page.evaluate(visible)
    assert len(everything) == 7  # the two that weren't run are folded
    for outcome in ("holds", "undecided", "not run"):
        page.get_by_label(f"{outcome} (").uncheck()
    assert page.evaluate(visible) == ["fails", "fails"]
    assert page.get_by_role("status").inner_text() == "2 of 9 claims shown"
    page.get_by_label("Method").select_option(PLUGIN)
    assert page.evaluate(visible) == []
    assert not page.get_by_role("heading", name="Trees that are nearly minimal").is_visible()
    page.get_by_label("Method").select_option("trees")
    assert page.evaluate(visible) == ["fails", "fails"]
    page.get_by_label("not run (").check()
    page.get_by_label("fails (").uncheck()
    assert page.evaluate(visible) == ["not run", "not run"]
    page.get_by_label("not run (").uncheck()
    assert not page.get_by_text("2 claims not run").is_visible()


def test_table_sorts_by_a_column_both_ways(opened: Open) -> None:
    page = opened("trees.html").page
    table = page.locator("table.sortable").first
    arms = "(table) => [...table.tBodies[0].rows].map((row) => row.cells[0].dataset.value)"
    assert table.evaluate(arms)[0] == USER_ARM
    seconds = "(table) => [...table.tBodies[0].rows].map((row) => Number(row.cells[3].dataset.value))"
    button = table.get_by_role("button", name="seconds")
    button.focus()
    page.keyboard.press("Enter")
    rising = table.evaluate(seconds)
    assert rising == sorted(rising)
    assert table.locator("th[aria-sort=ascending]").count() == 1
    page.keyboard.press("Enter")
    assert table.evaluate(seconds) == rising[::-1]
    table.get_by_role("button", name="odd").click()
    assert table.evaluate(arms)[-1] == "mfc"  # the one that isn't a number
    table.get_by_role("button", name="odd").click()
    assert table.evaluate(arms)[-1] == "mfc"


@pytest.mark.parametrize("name", PAGES)
def test_page_is_outlined_for_a_screen_reader(opened: Open, name: str) -> None:
    page = opened(name).page
    assert page.evaluate(NAMELESS) == []
    assert page.evaluate("document.documentElement.lang") == "en"
    assert page.title()
    levels = page.evaluate(
        "() => [...document.querySelectorAll('h1, h2, h3, h4')].map((one) => Number(one.tagName[1]))"
    )
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(below - above <= 1 for above, below in pairwise(levels))
    assert page.evaluate(
        "() => ['header', 'main', 'footer'].map((one) => document.querySelectorAll(`body > ${one}`).length)"
    ) == [1, 1, 1]
    assert page.evaluate("() => [...document.querySelectorAll('th')].filter((one) => !one.scope).length") == 0
    assert page.evaluate("() => [...document.querySelectorAll('table')].filter((one) => !one.caption).length") == 0
    folded = (
        "() => [...document.querySelectorAll('.scroll')].filter((one) => one.tabIndex !== 0 || !one.ariaLabel).length"
    )
    assert page.evaluate(folded) == 0


def test_charts_are_pictures_with_a_name_and_their_numbers(opened: Open) -> None:
    page = opened("trees.html").page
    charts = page.get_by_role("img", name=re.compile("ratio of seconds, mfc over"))
    assert charts.count() == 1
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    chart = next(
        node
        for node in nodes
        if node.get("role", {}).get("value") in ("img", "image")
        and "ratio of seconds" in node.get("name", {}).get("value", "")
    )
    assert "interval from" in chart["description"]["value"]
    assert "Table 2, GoogleNews: 0.31" in chart["description"]["value"]


def test_phone_keeps_the_scoreboard_a_table(opened: Open) -> None:
    page = opened("index.html", width=360).page
    page.get_by_text("2 claims not run").click()
    assert page.get_by_role("table").count() == 2
    assert page.get_by_role("row").count() == 11
    assert page.get_by_role("rowheader").count() == 9
    assert page.get_by_role("columnheader").count() == 6


def test_page_reads_without_scripts(opened: Open) -> None:
    page = opened("index.html", java_script_enabled=False).page
    assert not page.locator("#filter").is_visible()
    assert page.get_by_text("It takes at most 0.9 of the peer's time").is_visible()


def test_link_into_a_folded_part_unfolds_it(opened: Open) -> None:
    page = opened("trees.html").page
    inside = """() => {
      document.querySelector(".claim details table").id = "inside";
      location.hash = "inside";
    }"""
    page.evaluate(inside)
    page.wait_for_function("document.getElementById('inside').closest('details').open")


def test_print_leaves_out_controls_and_keeps_the_verdicts_colours(opened: Open, tmp_path: Path) -> None:
    page = opened("index.html", scheme="dark").page
    page.emulate_media(media="print", color_scheme="light")
    assert not page.locator("#filter").is_visible()
    assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("() => getComputedStyle(document.querySelector('.verdict')).printColorAdjust") == "exact"
    sheet = page.pdf(path=str(tmp_path / "page.pdf"), format="A4")
    assert sheet.startswith(b"%PDF")


def test_print_unfolds_the_arms_tables(opened: Open) -> None:
    page = opened("trees.html").page
    page.evaluate("() => document.querySelectorAll('.arms').forEach((one) => { one.closest('details').open = false; })")
    page.evaluate("() => dispatchEvent(new Event('beforeprint'))")
    folded = "() => [...document.querySelectorAll('.arms')].filter((one) => !one.closest('details').open).length"
    assert page.evaluate(folded) == 0
    page.evaluate("() => dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(folded) == 3
