"""The report, opened in a real browser: does it draw, fit, and answer the pointer?"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from known_results import result_of
from test_report import SERVER, TITLES

from dragoman.loadtest.report import render_page
from dragoman.loadtest.slo import judge, parse_objectives

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed (apt-get install chromium)"),
]

# What only a browser knows, measured in the page itself and left in its title.
PROBE = """
const plots = [...document.querySelectorAll(".plot svg")];
const first = plots[0].getBoundingClientRect();
plots[0].dispatchEvent(new PointerEvent("pointermove", {clientX: first.left + first.width / 2, clientY: first.top + 50}));
const tip = document.querySelector(".tip");
document.title = "PROBE" + JSON.stringify({
  plots: plots.length,
  narrowest: Math.min(...plots.map((plot) => plot.getBoundingClientRect().width)),
  overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  outside: plots.flatMap((plot) => [...plot.querySelectorAll("text")]
    .filter((text) => {
      const box = text.getBBox();
      return box.x < -2 || box.x + box.width > 564 || box.y < -2 || box.y + box.height > 252;
    }).map((text) => text.textContent)),
  clipped: [...document.querySelectorAll(".tile b")].filter((tile) => tile.scrollWidth > tile.clientWidth).length,
  tip: getComputedStyle(tip).visibility, says: tip.textContent,
  paper: getComputedStyle(document.body).backgroundColor,
}) + "END";
"""


def opened(page: Path, *flags: str) -> dict[str, object]:
    """What PROBE finds in the page; a script error or a refused resource fails the test."""
    assert BROWSER is not None
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]
    command += ["--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={page.parent / 'profile'}", *flags]
    done = subprocess.run([*command, page.as_uri()], capture_output=True, text=True, timeout=600, check=True)
    assert "CONSOLE" not in done.stderr
    found = re.search(r"PROBE(\{.*?\})END", done.stdout, re.DOTALL)
    assert found is not None
    measured: dict[str, object] = json.loads(found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    return measured


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    requests = [(number / 50, 0.05 + (number % 97) / 300 + (0.8 if number % 211 == 0 else 0)) for number in range(500)]
    result = result_of(requests, errors=9, bleu=41.7, server=SERVER)
    html = render_page(result, judge(parse_objectives(["p99<500ms", "errors<1%"]), result))
    path = tmp_path_factory.mktemp("report") / "page.html"
    path.write_text(html.replace("</body>", f"<script>{PROBE}</script></body>"), encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [1280, 420])
def test_the_report_fits_a_desktop_and_a_phone(page: Path, width: int) -> None:
    seen = opened(page, f"--window-size={width},1600")
    assert seen["plots"] == len(TITLES)
    assert seen["overflow"] == 0
    assert seen["outside"] == []
    assert seen["clipped"] == 0
    assert float(str(seen["narrowest"])) > 0.7 * min(width, 600)


def test_pointing_at_a_plot_shows_its_values(page: Path) -> None:
    seen = opened(page, "--window-size=1280,1600")
    assert seen["tip"] == "visible"
    assert re.fullmatch(r"\d+\.\d s · p50 \d+ ms · p90 \d+ ms · p99 .+", str(seen["says"]))


def test_the_report_follows_the_readers_colours(page: Path) -> None:
    light, dark = opened(page), opened(page, "--blink-settings=preferredColorScheme=0")
    assert light["paper"] != dark["paper"]
