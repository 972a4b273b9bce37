"""The page in a real browser, on a recorded application: keyboard, dark, phone, many regions, hostile records."""

import json
from collections.abc import Iterator

import pytest

from falkirk.runtime.supervision.web import WebServer
from falkirk.user_tools.commands.dashboard.board import Board
from falkirk.user_tools.commands.dashboard.consent import Consented
from tests.support import wait_until
from tests.unit.dashboard.browser import Browser, executable
from tests.unit.dashboard.recorded import HOSTILE, NOW_S, TOKEN, RecordedWatch, large, served, shop

PROGRAM = executable()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium is installed: apt-get install chromium")
TAB, ENTER, ESCAPE, LEFT, RIGHT, DOWN = 9, 13, 27, 37, 39, 40
DRAWN = "document.querySelectorAll('.node').length > 0 && document.querySelectorAll('.bar').length > 0"

Shop = tuple[WebServer, RecordedWatch, Board]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert PROGRAM is not None
    with Browser(PROGRAM) as found:
        yield found


@pytest.fixture
def here() -> Iterator[Shop]:
    with served(*shop()) as found:
        yield found


def opened(browser: Browser, here: Shop, **size: object) -> Browser:
    browser.open(f"{here[0].url}/#token={TOKEN}", **size)  # type: ignore[arg-type]
    browser.wait(DRAWN, "graph")
    return browser


def unharmed(browser: Browser, here: Shop) -> None:
    """Assert that no script failed, that nothing was blocked, and that all requests went to the page's own server."""
    assert not browser.problems
    assert browser.requests
    assert not [url for url in browser.requests if not url.startswith(f"{here[0].url}/")]


def test_it_shows_the_application_and_asks_nobody_else(browser: Browser, here: Shop) -> None:
    page = opened(browser, here)
    text = page.run("document.body.innerText")
    held = "230 results wait for a checkpoint of vouchers"
    for part in ("shop", "running", "If Spark died now", "≈ 13 s", "425", "exactly once, on arrival", "4.3 ms", held):
        assert part in text
    assert page.run("document.querySelectorAll('.hull').length") == 4
    assert page.run("location.hash + location.search") == ""
    # The three frontiers of a sink that waits: all is computed, and published results are saved.
    bars = "document.querySelectorAll('[data-edge=\"sink vouchers\"] .bar')"
    shares = page.run(f"[...{bars}].map(b => new DOMMatrix(b.style.transform).a)")
    assert shares[0] == 1
    assert 0 < shares[1] == shares[2] < 1
    assert page.run("document.querySelectorAll('.chart canvas').length") == 2
    unharmed(page, here)


def test_bars_move_when_the_frontiers_do(browser: Browser, here: Shop) -> None:
    page = opened(browser, here)
    bar = "new DOMMatrix(document.querySelector('[data-edge=\"orders to vouchers\"] .bar.saved').style.transform).a"
    before = page.run(bar)
    look = here[2].part("look")
    look["edges"]["orders to vouchers"]["saved"] = 1095
    here[2].publish("look", {**look, "at_s": NOW_S + 1})
    page.wait(f"{bar} > {before} + 0.2", "longer bar")


def test_records_of_others_are_shown_as_text(browser: Browser, here: Shop) -> None:
    page = opened(browser, here)
    page.run("document.getElementById('tab-letters').click()")
    page.wait("document.querySelector('.letters pre')", "dead letter")
    assert page.run("document.querySelector('.letters pre').textContent") == HOSTILE
    page.run("document.getElementById('tab-events').click()")
    page.wait("document.querySelector('.events li.letters')", "event")
    assert HOSTILE in page.run("document.querySelector('.events').textContent")
    assert page.run("document.querySelectorAll('main img, main script, main [onerror]').length") == 0
    assert page.run("document.title") == "shop · Falkirk"
    unharmed(page, here)


def test_all_of_it_works_from_the_keyboard(browser: Browser, here: Shop) -> None:
    page = opened(browser, here)
    for _ in range(12):
        page.press("Tab", TAB)
        if page.run("document.activeElement.dataset.node || ''"):
            break
    first = page.run("document.activeElement.dataset.node")
    assert first == "in:orders"
    page.press("ArrowRight", RIGHT)
    page.wait("document.activeElement.dataset.node && document.activeElement.dataset.node !== 'in:orders'", "next node")
    unit = page.run("document.activeElement.dataset.node.split('/')[0].slice(5)")
    page.press("Enter", ENTER)
    page.wait(f"document.querySelector('.died').innerText.includes('If {unit} died now')", "what a failure costs")
    page.wait("document.querySelector('section.selected')", "facts of the unit")
    page.press("Escape", ESCAPE)
    page.wait("!document.querySelector('section.selected')", "closed panel")
    page.run("document.getElementById('tab-history').focus()")
    page.press("ArrowRight", RIGHT)
    page.wait("document.activeElement.id === 'tab-letters' && document.querySelector('.letters')", "next tab")
    page.press("ArrowLeft", LEFT)
    page.wait("document.activeElement.id === 'tab-history' && document.querySelector('.slider')", "former tab")
    assert page.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    unharmed(page, here)


def test_a_rollback_is_previewed_and_asks_first(browser: Browser, here: Shop) -> None:
    page = opened(browser, here)
    button = "document.querySelector('.history .action')"
    page.wait(f"{button} && !{button}.disabled", "preview")
    page.run("document.querySelector('.slider input').focus()")
    for _ in range(3):
        page.press("ArrowLeft", LEFT)
    page.wait("document.querySelector('.history h3').innerText.startsWith('Cut 3')", "older cut")
    page.wait(f"!{button}.disabled && document.querySelector('.history td')", "preview of it")
    assert "470 published results in sales would become invalid" in page.run(
        "document.querySelector('.history').innerText"
    )
    page.run(f"{button}.focus()")
    page.press("Enter", ENTER, text="\r")
    page.wait("document.querySelector('dialog[open]')", "question")
    assert page.run("document.activeElement.type") != "submit"
    assert page.run("document.querySelector('dialog .danger').disabled"), "published results need a further consent"
    page.press("Escape", ESCAPE)
    page.wait("!document.querySelector('dialog')", "end of the question")
    assert not here[1].asked
    page.run(f"{button}.click()")
    page.wait("document.querySelector('dialog[open] .force input')", "question")
    page.run("document.querySelector('dialog .force input').click()")
    page.wait("!document.querySelector('dialog .danger').disabled", "button")
    here[1].is_outdated = True
    page.run("document.querySelector('dialog .danger').click()")
    page.wait("document.querySelector('dialog .bad')", "refusal")
    page.wait("document.querySelector('dialog .danger').disabled", "need of a new consent")
    assert not here[1].asked
    assert ["409" in problem for problem in page.problems] == [True], "the browser notes the refusal"
    page.problems.clear()
    here[1].is_outdated = False
    page.run("document.querySelector('dialog .force input').click()")
    page.wait("!document.querySelector('dialog .danger').disabled", "button")
    page.run("document.querySelector('dialog .danger').click()")
    page.wait("document.querySelector('dialog .good')", "answer")
    assert here[1].asked == [("3", True)]
    assert here[1].shown == Consented(checkpoints={"sales": 0}, outside={"sales": 470}, at_s=NOW_S)
    unharmed(page, here)


@pytest.mark.parametrize("dark", [False, True])
def test_light_and_dark(browser: Browser, here: Shop, dark: bool) -> None:
    page = opened(browser, here, dark=dark)

    def lightness(what: str) -> float:
        colour = f"getComputedStyle(document.querySelector('{what}'))"
        found = page.run(
            f"({colour}.fill.startsWith('rgb') && '{what}'.includes('label') ? {colour}.fill : {colour}.color)"
        )
        return sum(map(int, found[4:-1].split(","))) / 765

    back = page.run("getComputedStyle(document.documentElement).backgroundColor")
    assert (sum(map(int, back[4:-1].split(","))) / 765 < 0.3) is dark
    for text in (".died dd", ".node .label", "h1"):
        assert (lightness(text) > 0.6) is dark


def test_a_phone_needs_no_sideways_scrolling(browser: Browser, here: Shop) -> None:
    page = opened(browser, here, width=375, height=812)
    assert page.run("document.documentElement.scrollWidth") == 375
    # The graph goes down and not to the right, and all of it is on the screen.
    inside = page.run(
        "[...document.querySelectorAll('.node')].every(n => { const b = n.getBoundingClientRect(); "
        "return b.left >= 0 && b.right <= 375; })"
    )
    assert inside
    tops = page.run(
        "['in:orders', 'step:sales/sales', 'out:sales'].map(id => document.querySelector(`[data-node=\"${id}\"]`)"
        ".getBoundingClientRect().top)"
    )
    assert tops == sorted(tops)
    assert (
        page.run("Math.min(...[...document.querySelectorAll('[role=tab]')].map(t => t.getBoundingClientRect().height))")
        >= 40
    )
    unharmed(page, here)


def test_two_hundred_regions(browser: Browser) -> None:
    with served(*large(200)) as here:
        page = opened(browser, here, width=1100, height=700)
        assert page.run("document.querySelectorAll('.node').length") > 300
        took_ms = float(page.run("document.querySelector('.canvas').dataset.tookMs"))
        if took_ms >= 2000:  # the machine may be busy, so the quickest of three counts
            graph = json.dumps(here[2].part("graph"))
            took_ms = page.run(f"""import('/graph.js').then(({{place}}) => {{
                const took = (t) => {{ place({graph}, 'LR'); return performance.now() - t; }};
                return Math.min(took(performance.now()), took(performance.now()));
            }})""")
        assert took_ms < 2000
        page.run("document.getElementById('find').focus()")
        for letter in "step-199":
            page.press(letter, text=letter)
        page.wait("document.getElementById('find').value === 'step-199'", "typed name")
        page.press("Enter", ENTER)
        page.wait("document.activeElement.dataset.node === 'step:step-199/step-199'", "found step")
        box = page.run("(b => [b.left, b.top])(document.activeElement.getBoundingClientRect())")
        assert 0 < box[0] < 1100
        unharmed(page, here)


def test_it_connects_again_by_itself(browser: Browser, here: Shop) -> None:
    page = opened(browser, here)
    here[2].close()  # all streams end
    page.wait("document.querySelector('.pill').innerText.includes('does not answer')", "note that it is lost")
    here[2]._closed = False
    here[2].publish("events", [{"n": 9, "at_s": NOW_S, "kind": "note", "unit": "", "text": "back again"}])
    page.run("document.getElementById('tab-events').click()")
    page.wait("document.querySelector('.events').innerText.includes('back again')", "event after the loss")
    wait_until(lambda: here[2].is_watched, 30, "stream")


def test_without_the_token_there_is_nothing_to_see(browser: Browser, here: Shop) -> None:
    browser.run("sessionStorage.clear()")
    browser.open(f"{here[0].url}/")
    browser.wait("document.querySelector('main.token input')", "question for the token")
    browser.open(f"{here[0].url}/#token=wrong")
    browser.wait("document.querySelector('main.token input')", "question for the token")
    assert "orders" not in browser.run("document.body.innerText")
    browser.run(f"document.querySelector('main.token input').value = '{TOKEN}'")
    browser.run("document.querySelector('main.token button').click()")
    browser.wait(DRAWN, "graph")
