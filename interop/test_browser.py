"""Headless Chromium shows the page of a directory: its order, its layout, its filter, its colours."""

import http.server
import os
import re
import threading
import urllib.request
from pathlib import Path

import pytest

from browser import Browser, Tab

DESKTOP, PHONE = (1280, 800), (375, 667)
LONG = "long_" * 48
ODD = [b'"quoted" & <b>bold', b"it's", b"new\nline", b"latin1-\xe9", b"  two  blanks ", "rtl\u202etxt.exe".encode(), b"100%?#:x",
       b"</table><script>document.title='run'</script>".replace(b"/", b"\\")]
MIN_CONTRAST = 4.5
"""The contrast that WCAG 2.2 requires (1.4.3)."""


def pair(operation: str, **more):
    """Returns the mark of a test of this module."""
    return pytest.mark.pair("Chromium", operation, **more)


@pytest.fixture(scope="session")
def browser(base):
    """A running browser."""
    browser = Browser(base / "browser")
    yield browser
    browser.close()


def fill(directory: Path, count: int) -> dict[str, int]:
    """Creates `count` entries: two directories, a name of 240 characters, and files; returns the sizes of the files."""
    for name in ("zeta", "beta"):
        (directory / name).mkdir()
    names = [LONG] + [f"event-{number * 1117 % (count - 3):05}.root" for number in range(count - 3)]
    sizes = {name: 7 ** (number % 12) for number, name in enumerate(names)}
    for name, size in sizes.items():
        (directory / name).touch()
        os.truncate(directory / name, size)
    return sizes


def shown(tab: Tab) -> list[str]:
    """Returns the names in the rows that are visible."""
    return tab.run("[...document.querySelectorAll('tbody tr')].filter(row => row.offsetHeight).map(row => row.cells[0].textContent)")


@pair("2,000 entries in order; sorted by a click, without JavaScript")
def test_order(area, browser):
    sizes = fill(area.local, 2000)
    tab = Tab(browser, *DESKTOP, scripts=False)
    tab.open(area.http())
    assert shown(tab) == ["beta/", "zeta/", *sorted(sizes)]
    tab.follow("th:nth-child(2) button")
    assert shown(tab) == ["beta/", "zeta/", *sorted(sizes, key=lambda name: (-sizes[name], name))]
    tab.follow("th:nth-child(2) button")
    assert shown(tab) == ["beta/", "zeta/", *sorted(sizes, key=lambda name: (sizes[name], name))]
    assert tab.run("document.querySelector('label').offsetHeight") == 0, "the filter needs JavaScript"
    assert tab.run("document.getElementById('late').offsetHeight") == 0
    tab.follow("h1 a")
    assert tab.run("location.pathname") == "/"
    assert tab.complaints() == []


@pytest.mark.parametrize("size", [pytest.param(DESKTOP, marks=pair("a name of 240 characters leaves the other columns in view")),
                                  pytest.param(PHONE, marks=pair("the same on a phone, 375 pixels wide"))])
def test_columns(area, browser, size):
    fill(area.local, 2000)
    tab = Tab(browser, *size)
    tab.open(area.http())
    cells = tab.run("""[...document.querySelectorAll('tr')].map(row => [...row.cells].map(cell => {
        const inside = document.createRange(); inside.selectNodeContents(cell)
        const text = inside.getBoundingClientRect(), box = cell.getBoundingClientRect()
        return [box.left, text.width ? text.left : box.left, text.width ? text.right : box.right, box.right] }))""")
    assert len(cells) == 2001 and all(len(row) == 3 for row in cells)
    outside = [row for row in cells for left, text_left, text_right, right in row
               if not 0 <= left <= text_left + 0.5 <= text_right <= right + 0.5 <= size[0] + 0.5]
    assert outside == []
    assert {tuple(round(cell[0]) for cell in row) for row in cells} == {tuple(round(cell[0]) for cell in cells[0])}, "columns"
    assert tab.run("document.documentElement.scrollWidth") <= size[0]


@pair("the filter hides other entries and counts")
def test_filter(area, browser):
    sizes = fill(area.local, 2000)
    tab = Tab(browser, *DESKTOP)
    tab.open(area.http())
    everything = tab.run("document.getElementById('count').textContent")
    assert everything.startswith("2,000 entries, of which 2 directories; ")
    tab.click("input")
    tab.type("EVENT-0012")
    expected = sorted(name for name in sizes if name.startswith("event-0012"))
    assert (len(expected), shown(tab)) == (10, expected)
    assert tab.run("document.getElementById('count').textContent") == "10 of 2,000 entries match"
    tab.run("document.querySelector('input').select()")
    tab.type("ta/")
    assert shown(tab) == ["beta/", "zeta/"]
    assert tab.complaints() == []


@pair("odd names are shown, lead to their files, and are no markup")
def test_odd_names(area, browser):
    for number, name in enumerate(ODD):
        Path(os.fsdecode(os.path.join(os.fsencode(area.local), name))).write_bytes(b"x" * number)
    tab = Tab(browser, *DESKTOP)
    tab.open(area.http())
    links = tab.run("[...document.querySelectorAll('td a')].map(link => [link.href, link.innerText])")
    sizes = []
    for href, _ in links:
        with urllib.request.urlopen(href) as answer:
            sizes.append(len(answer.read()))
    assert sizes == [ODD.index(name) for name in sorted(ODD)]
    names = [text for _, text in links]
    assert {"  two  blanks ", '"quoted" & <b>bold', "new\\nline", "latin1-\\xe9", "rtl\\u{202e}txt.exe"} <= set(names)
    assert tab.run("document.querySelectorAll('script, b').length") == 1
    assert "run" != tab.run("document.title")
    assert tab.complaints() == []


def contrast(one: str, other: str) -> float:
    """Returns the contrast of two colours, `rgb(r, g, b)`, by WCAG 2.2."""
    def luminance(colour: str) -> float:
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


@pair("light and dark colours are readable")
def test_colours(area, browser):
    fill(area.local, 10)
    pages = []
    for dark in (False, True):
        tab = Tab(browser, *DESKTOP, dark=dark)
        tab.open(area.http())
        pages.append(tab.run("getComputedStyle(document.body).backgroundColor"))
        for selector in ("body", "h1 a", "td a", "td:nth-child(2)", "th button", "footer", "input", "label"):
            colour = tab.run(f"getComputedStyle(document.querySelector('{selector}')).color")
            assert contrast(colour, pages[-1]) >= MIN_CONTRAST, f"{selector} in {'dark' if dark else 'light'}: {colour} on {pages[-1]}"
    assert contrast(*pages) > 10, pages


@pair("headers, language and the filter are named for assistive programs")
def test_accessibility(area, browser):
    fill(area.local, 10)
    tab = Tab(browser, *DESKTOP)
    tab.open(area.http())
    nodes = tab.call("Accessibility.getFullAXTree")["nodes"]
    named = {(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if "role" in node}
    assert {("columnheader", "Name"), ("columnheader", "Size"), ("columnheader", "Modified (UTC)")} <= {(role, name.rstrip(" ↑↓")) for role, name in named}
    assert ("searchbox", "Filter") in named and any(role == "status" for role, _ in named)
    assert tab.run("document.documentElement.lang") == "en"
    assert tab.run("document.title") == f"{area.path} – 127.0.0.1"
    tab.run("document.querySelector('th button').focus({focusVisible: true})")
    assert tab.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"


@pair("a page that was cut off says so")
def test_cut_off(area, browser):
    fill(area.local, 100)
    with urllib.request.urlopen(area.http()) as answer:
        policy, page = answer.headers["content-security-policy"], answer.read()
    half = page[:len(page) // 2]

    class Half(http.server.BaseHTTPRequestHandler):
        """Sends the first half of the page."""

        def do_GET(self):
            """Answers a request."""
            self.send_response(200)
            self.send_header("content-type", "text/html; charset=utf-8")
            self.send_header("content-security-policy", policy)
            self.end_headers()
            self.wfile.write(half)

        def log_message(self, *_):
            """Logs nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Half) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        tab = Tab(browser, *DESKTOP)
        tab.open(f"http://127.0.0.1:{server.server_port}/")
        assert 10 < len(shown(tab)) < 90
        assert "is complete if its last line" in tab.run("document.getElementById('late').innerText")
        assert tab.run("document.getElementById('late').offsetHeight") > 0
        server.shutdown()
