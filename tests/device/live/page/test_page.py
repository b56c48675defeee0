"""The page of `edgerun live`: who may see it, what it shows in a browser, and what viewers cost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests import requirements
from tests.conftest import ROOT, run_edgekit
from tests.device.live import films
from tests.device.live.running import Live
from tests.device.monitor.watched import with_reference
from tests.report.html.browser import Browser

RULE = ("--rule", "name=seen", "label=red", "threshold=0.6")
TOKEN = "correct-horse-battery"
HANGS_AFTER_2_S = """
import sys
from edgekit.device.live import page
from edgekit.runner.cli import main
page.HUNG_S = 2.0
sys.exit(main())
"""


@pytest.fixture
def running(colours: Path, film: Path, live: Callable[..., Live]) -> Live:
    """With two cameras and a page for this machine."""
    return live(colours, "--from", f"door={film}", "--from", f"yard={film}", "--loop", "--page", "0", *RULE)


@pytest.fixture
def guarded(colours: Path, film: Path, live: Callable[..., Live], tmp_path: Path) -> Live:
    """With a page for all machines, so with a token."""
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    words = ("--page", "0.0.0.0:0", "--token-file", tmp_path / "token")
    return live(colours, "--from", film, "--loop", *words, *RULE)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened = Browser.start(requirements.program("chromium"), tmp_path_factory.mktemp("chromium"))
    yield opened
    opened.stop()


def open_page(browser: Browser, url: str, width: int = 1200) -> None:
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
    browser.complaints.clear()
    browser.requested.clear()
    browser.call("Page.navigate", url=url)


def until(browser: Browser, condition: str) -> None:
    limit = time.monotonic() + 30
    while not browser.ask(f"document.readyState === 'complete' && !!({condition})"):
        assert time.monotonic() < limit, f"{condition}: {browser.ask('document.body.innerText')}"
        time.sleep(0.05)


def pictures(port: int, path: str = "/stream.mjpg") -> Iterator[bytes]:
    """The JPEG files of a stream."""
    with closing(socket.create_connection(("127.0.0.1", port), timeout=30)) as connection:
        connection.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        stream = connection.makefile("rb")
        while line := stream.readline():
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
                stream.readline()
                yield stream.read(length)


def test_it_shows_picture_answer_and_events(browser: Browser, running: Live) -> None:
    port = running.port
    open_page(browser, f"http://127.0.0.1:{port}/")
    until(browser, "document.getElementById('picture').naturalWidth === 320")
    until(browser, "/^[0-9]+ × red$/.test(document.querySelector('.headline')?.textContent)")
    until(browser, "/^[0-9]+%$/.test(document.querySelector('#answers .row span:nth-child(2)')?.textContent)")
    until(browser, "/red [0-9]+%/.test(document.querySelector('#events li')?.textContent)")
    until(browser, "parseFloat(document.getElementById('rate').textContent) > 0")
    assert browser.ask("document.getElementById('title').textContent") == "colours 1.0.0"
    assert [browser.ask(f"document.querySelectorAll('nav button')[{each}].textContent") for each in (0, 1)] == [
        "door", "yard",
    ]  # fmt: skip
    browser.ask("document.querySelectorAll('nav button')[1].click()")
    until(browser, "document.getElementById('picture').src.includes('source=yard')")
    until(browser, "!document.getElementById('picture').hidden && document.getElementById('picture').naturalWidth")
    assert not browser.complaints
    assert all(each.startswith((f"http://127.0.0.1:{port}/", "data:")) for each in browser.requested)


def test_boxes_are_drawn_into_the_picture(running: Live) -> None:
    import io

    from PIL import Image

    for data in pictures(running.port):
        pixels = np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).astype(int)
        yellow = (pixels[..., 0] > 180) & (pixels[..., 1] > 170) & (pixels[..., 2] < 140)
        if yellow.sum() > 300:  # the colour of the first class
            return


def test_a_single_picture_is_a_new_one(running: Live) -> None:
    running.until(lambda: running.ask("/picture.jpg?source=door").status == 200)
    seen = set()
    for _ in range(6):
        time.sleep(0.3)  # nobody looks meanwhile
        seen.add(running.ask("/picture.jpg?source=door").text)  # type: ignore[attr-defined]
    assert len(seen) >= 3, "the grey frames of the film are all the same"


@pytest.mark.parametrize("width", [390, 1200])
def test_it_fits_a_phone_and_a_wide_screen(browser: Browser, running: Live, width: int) -> None:
    open_page(browser, f"http://127.0.0.1:{running.port}/", width)
    until(browser, "!document.getElementById('picture').hidden")
    assert browser.ask("document.documentElement.scrollWidth") <= width
    assert browser.ask("[...document.querySelectorAll('button')].every(each => each.offsetHeight >= 40)")


def test_a_kept_sample_can_be_packed(browser: Browser, running: Live, home: Path, tmp_path: Path) -> None:
    open_page(browser, f"http://127.0.0.1:{running.port}/")
    until(browser, "!document.getElementById('picture').hidden")
    browser.ask("document.getElementById('keep').click()")
    until(browser, "document.getElementById('keep').textContent.includes('Kept')")
    [sample] = (home / "live" / "kept").glob("*/1.000000-*.npz")
    with np.load(sample) as content:
        assert content["raw"].shape == (64, 64, 3)
    words = (home / "live" / "kept", tmp_path / "kept.npz", "--files", tmp_path / "files")
    done = run_edgekit("field", "pack", *map(str, words), PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "files").rglob("*.png"))) == 1


def test_its_headers_allow_nothing_from_others(running: Live) -> None:
    answer = running.ask("/")
    headers = {name.lower(): value for name, value in answer.getheaders()}
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store"
    assert not [name for name in headers if name.startswith("access-control")]


def test_requests_of_other_sites_are_refused(running: Live) -> None:
    assert running.ask("/state", Host="evil.example").status == 403, "a name that was pointed at this machine"
    assert running.ask("/state", Host="localhost:1").status == 200
    assert running.ask("/picture.jpg", Sec_Fetch_Site="cross-site").status == 403, "a picture in another page"
    for headers in (
        {"Origin": "http://evil.example"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Origin": "null"},
        {"Cookie": "edgerun=1"},
    ):
        assert running.ask("/keep", "POST", "source=door", **headers).status == 403, headers
    own = f"http://127.0.0.1:{running.port}"
    running.until(lambda: running.state()["sources"][0]["answers"][0]["answered"])
    assert running.ask("/keep", "POST", "source=door", Origin=own, Sec_Fetch_Site="same-origin").status == 200
    assert running.ask("/keep", "POST", "source=none", Origin=own).status == 404
    assert running.ask("/keep", "POST", "x" * 5000, Origin=own).status == 413
    assert running.ask("/nothing").status == 404


def test_other_machines_need_the_token(guarded: Live, browser: Browser) -> None:
    for path in ("/state", "/stream.mjpg", "/picture.jpg", "/events"):
        assert guarded.ask(path).status == 401, path
        assert guarded.ask(path, Authorization="Bearer wrong-horse-battery").status == 401
    assert guarded.ask("/keep", "POST", "source=source").status == 401
    assert guarded.ask("/state", Authorization=f"Bearer {TOKEN}").status == 200
    open_page(browser, f"http://127.0.0.1:{guarded.port}/")
    for token, shown in (("wrong", "document.querySelector('.bad') && !document.querySelector('.bad').hidden"),
                         (TOKEN, "document.getElementById('picture')?.naturalWidth === 320")):  # fmt: skip
        until(browser, "document.querySelector('input')")
        browser.ask(f"document.querySelector('input').value = '{token}'; document.querySelector('form').submit()")
        until(browser, shown)
    assert browser.ask("document.cookie") == "", "scripts do not see it"
    assert TOKEN not in "\n".join([*guarded.errors, *guarded.out])
    assert "token in " in guarded.errors[0]


def test_a_token_is_made_for_its_owner_alone(colours: Path, film: Path, live: Callable[..., Live], home: Path) -> None:
    run = live(colours, "--from", film, "--loop", "--page", "0.0.0.0:0")
    port, path = run.port, home / "live" / "live-token"
    assert path.stat().st_mode & 0o777 == 0o600
    token = path.read_text().strip()
    assert len(token) >= 32 and run.ask("/state", Authorization=f"Bearer {token}").status == 200
    assert token not in "\n".join(run.errors) and port


def test_ten_viewers_see_it_and_the_eleventh_too(running: Live) -> None:
    port, seen = running.port, [0] * 11

    def view(number: int) -> None:
        for _ in pictures(port, "/stream.mjpg?source=door"):
            seen[number] += 1
            if seen[number] >= 12:
                return

    threads = [threading.Thread(target=view, args=(number,)) for number in range(11)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert min(seen) >= 12
    source = running.state()["sources"][0]
    assert source["answers"][0]["rate"] > 1, "of ten frames a second, on a machine that also views"


def test_slow_and_silent_connections_are_bounded(running: Live) -> None:
    port = running.port
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(80)]
    try:
        running.until(lambda: running.ask("/state").status == 200)  # the first ones are closed after ten seconds
    finally:
        for each in silent:
            each.close()


def test_a_killed_page_comes_back_and_the_model_goes_on(running: Live) -> None:
    port = running.port
    before = running.until(lambda: running.state()["sources"][0]["answers"][0])["answered"]
    [page] = [each for each in running.children() if "page.server" in Path(f"/proc/{each}/cmdline").read_text()]
    os.kill(page, signal.SIGKILL)
    after = running.until(lambda: running.state()["sources"][0]["answers"][0])["answered"]
    assert after > before and running.port == port
    assert [line for line in running.errors if "its process ended" in line]


def test_a_page_that_hangs_does_not_stop_the_model(colours: Path, film: Path, live: Callable[..., Live]) -> None:
    command = (sys.executable, "-c", HANGS_AFTER_2_S, "live")
    running = live(colours, "--from", f"door={film}", "--loop", "--page", "0", *RULE, command=command)
    running.until(running.state)
    viewing = pictures(running.port)
    next(viewing)
    [page] = [each for each in running.children() if "page.server" in Path(f"/proc/{each}/cmdline").read_text()]
    os.kill(page, signal.SIGSTOP)
    before = len(running.out)
    running.until(lambda: len(running.out) >= before + 4)  # the film begins again every three seconds
    running.until(lambda: [line for line in running.errors if "its process ended (exit code -9)" in line])
    running.until(running.state)
    code, seconds = running.stop()
    assert code == 0 and seconds < 10


def test_nobody_looking_costs_nothing(running: Live) -> None:
    [page] = running.until(
        lambda: [each for each in running.children() if "page.server" in Path(f"/proc/{each}/cmdline").read_text()]
    )
    running.state()
    ticks = [_ticks(page)]
    time.sleep(3)
    ticks.append(_ticks(page))
    assert (ticks[1] - ticks[0]) / os.sysconf("SC_CLK_TCK") / 3 < 0.02


def _ticks(process: int) -> int:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_it_says_whether_the_model_is_still_right(
    browser: Browser, colours: Path, film: Path, live: Callable[..., Live], tmp_path: Path
) -> None:
    samples = np.random.default_rng(0).integers(0, 256, (80, films.SIDE, films.SIDE, 3)).astype(np.uint8)
    watched = with_reference(Path(shutil.copy(colours, tmp_path)), samples)
    run = live(watched, "--from", film, "--loop", "--page", "0", "--watch")
    open_page(browser, f"http://127.0.0.1:{run.port}/")
    until(browser, "document.getElementById('health').textContent.startsWith('still right? too early to say')")
    assert run.stop()[0] == 0
    assert "edgerun: still right? " in run.errors[-1]


def test_the_state_is_json_with_everything_shown(running: Live) -> None:
    state = running.until(lambda: (found := running.state())["sources"][0]["answers"][0].get("timing") and found)
    source = state["sources"][0]
    assert {"name", "state", "frames", "dropped", "reconnects", "width", "height"} <= source.keys()
    assert set(source["answers"][0]["timing"]) == {"read", "prepare", "model", "rules", "total"}
    assert json.dumps(state["machine"]) and state["models"] == [{"name": "colours", "verdict": None}]
