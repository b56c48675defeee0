"""The tutorial from a camera to a switch: its own commands and files, on a film and with a broker that has passwords.

Only the camera, the broker's address, the page's port and the path of Python are other than on the page.
"""

from __future__ import annotations

import json
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgekit.device import pyz
from tests import requirements
from tests.conftest import ROOT
from tests.deploy.test_unit import analyze
from tests.device.live import door
from tests.device.live.running import PATIENCE_S, Live, environment
from tests.device.live.sinks.broker import Broker, Subscriber
from tests.docs import pages
from tests.docs.commands import ELSEWHERE
from tests.report.html.browser import Browser

PAGE = ROOT / "docs" / "tutorials" / "camera-to-switch.md"
FILES = {block.title: block.text for block in pages.blocks(PAGE) if block.title}
UNIT = "edgerun-live.service"
PASSWORD = "correct horse"
YELLOW = 300
"""Pixels of a box's colour, at least, in a picture with one."""
COUNT_YELLOW = """(() => {
  const picture = document.getElementById("picture"), canvas = document.createElement("canvas");
  if (!picture?.naturalWidth) return 0;
  [canvas.width, canvas.height] = [picture.naturalWidth, picture.naturalHeight];
  const context = canvas.getContext("2d");
  context.drawImage(picture, 0, 0);
  const data = context.getImageData(0, 0, canvas.width, canvas.height).data;
  let count = 0;
  for (let at = 0; at < data.length; at += 4) count += data[at] > 180 && data[at + 1] > 170 && data[at + 2] < 140;
  return count;
})()"""


@pytest.fixture(scope="session")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return door.film(tmp_path_factory.mktemp("door") / "door.mp4")


@dataclass(frozen=True)
class Pi:
    """The home folder of a device on which the tutorial is followed."""

    folder: Path
    broker: Broker
    assistant: Subscriber
    browser: Browser
    start: Callable[..., Live]

    def as_here(self, text: str) -> str:
        """A command or file of the page with the film and the broker of this test."""
        for written, meant in (
            ("v4l2:/dev/video0", "door.mp4"),
            ("homeassistant.local", f"127.0.0.1:{self.broker.port}"),
            ("--page 8080", "--page 0"),
            ("page: 8080", "page: 0"),
            ("/home/pi/edge/bin/python", sys.executable),
            ("edge/bin/python", sys.executable),
            ("/home/pi", str(self.folder)),
        ):
            text = text.replace(written, meant)
        return text

    @property
    def variables(self) -> dict[str, str]:
        return {"HOME": str(self.folder), "PYTHONPATH": ""}

    def run(self, command: str) -> str:
        """What a command prints that must succeed."""
        done = subprocess.run(
            shlex.split(self.as_here(command)), cwd=self.folder, env=environment(self.home, **self.variables),
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def begin(self, command: str) -> Live:
        """A command that goes on."""
        return self.start(command=shlex.split(self.as_here(command)), folder=self.folder, **self.variables)

    @property
    def home(self) -> Path:
        return self.folder / ".edge"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened = Browser.start(requirements.program("chromium"), tmp_path_factory.mktemp("chromium"))
    yield opened
    opened.stop()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "pi" / ".edge"


@pytest.fixture
def pi(tmp_path: Path, home: Path, film: Path, browser: Browser, live: Callable[..., Live]) -> Iterator[Pi]:
    folder, passwords = home.parent, tmp_path / "passwords"
    folder.mkdir()
    pyz.build(folder / "edgerun.pyz")
    door.detector(folder / "detector-onnx-1.0.0.edge.zip")
    (folder / "door.mp4").symlink_to(film)
    passwords.touch()
    for user in ("door", "assistant"):
        subprocess.run([requirements.program("mosquitto_passwd"), "-b", passwords, user, PASSWORD], check=True)
    broker = Broker(tmp_path / "broker", f"allow_anonymous false\npassword_file {passwords}\n")
    assistant = Subscriber(broker.port, "#", login=("assistant", PASSWORD))
    yield Pi(folder, broker, assistant, browser, live)
    assistant.close()
    broker.kill()


def open_page(pi: Pi, run: Live) -> None:
    screen = {"width": 1120, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    pi.browser.call("Emulation.setDeviceMetricsOverride", **screen)
    pi.browser.call("Page.navigate", url=f"http://127.0.0.1:{run.port}/")


def shows_a_box(pi: Pi) -> bool:
    """Whether the page's picture has a frame in the colour of the first class."""
    return int(pi.browser.ask(COUNT_YELLOW)) > YELLOW


def events(pi: Pi) -> list[dict[str, Any]]:
    """Those that the broker has passed on."""
    return [json.loads(payload) for name, payload, _ in pi.assistant.messages if name == "edgekit/door/visitor"]


def looks(pi: Pi, command: str) -> None:
    run = pi.begin(command)
    open_page(pi, run)
    run.until(lambda: shows_a_box(pi))
    assert run.stop(signal.SIGINT)[0] == 0


def tries_the_rule(pi: Pi, command: str) -> None:
    run = pi.begin(command)
    run.until(lambda: len(run.out) == 2)
    for line, printed in zip(run.out, ("on: person \\d+%", "off: person"), strict=True):
        assert re.fullmatch(rf"\d\d:\d\d:\d\d door visitor {printed}", line), line
    assert run.stop(signal.SIGINT)[0] == 0


def writes_the_password(pi: Pi, command: str) -> None:
    path = pi.folder / command.split()[-1]
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text(f"{PASSWORD}\n")


def publishes(pi: Pi, command: str) -> None:
    run = pi.begin(command)
    open_page(pi, run)
    event = "document.querySelector('#events li')?.textContent"
    run.until(lambda: pi.browser.ask(event) and shows_a_box(pi))
    assert "visitor" in pi.browser.ask(event)
    time.sleep(1)  # the bars move into their places
    pi.browser.picture(pi.folder / "live-page.png", whole=False)  # as in docs/assets
    run.until(lambda: len(events(pi)) == 2)
    assert run.stop(signal.SIGINT)[0] == 0
    assert PASSWORD not in "\n".join([*run.errors, *run.out])
    assert [(event["kind"], event["label"]) for event in events(pi)] == [("on", "person"), ("off", "person")]
    announced = [each for each in pi.assistant.messages if each[0].startswith("homeassistant/")]
    configs = {topic.split("/")[1]: json.loads(payload) for topic, payload, _ in announced}
    assert set(configs) == {"binary_sensor", "camera"} and len(announced) == 2
    sensor = configs["binary_sensor"]
    states = [payload for topic, payload, _ in pi.assistant.messages if topic == sensor["state_topic"]]
    assert states == [b"OFF", b"ON", b"OFF"]
    assert f"the sensor `{sensor['name']}`" in PAGE.read_text()
    assert sensor["device"]["name"] == socket.gethostname()
    entity = f"binary_sensor.raspberrypi_{sensor['name'].replace(' ', '_')}"  # if the Pi is called so
    assert yaml.safe_load(FILES["automation.yaml"])["triggers"][0]["entity_id"] == entity


def serves(pi: Pi, command: str) -> None:
    """What the unit starts."""
    before = len(events(pi))
    [start] = re.findall("^ExecStart=(.*)$", FILES[UNIT], re.MULTILINE)
    run = pi.begin(start)
    run.until(lambda: len(events(pi)) > before)
    assert events(pi)[-1]["kind"] == "on"
    assert run.stop()[0] == 0


def ends(pi: Pi, command: str) -> None:
    pi.run(command)


STEPS = {
    "--rule": tries_the_rule,
    "--config": publishes,
    "edgerun.pyz live": looks,
    "nano": writes_the_password,
    "systemctl enable": serves,
    "": ends,
}
"""What is done with a command of the page that has such words; the first that fit."""


@pytest.mark.processes
def test_the_commands_of_the_page_switch_home_assistant(pi: Pi) -> None:
    for name in ("live.yaml", UNIT):
        (pi.folder / name).write_text(pi.as_here(FILES[name]))
    for each in pages.commands(PAGE):
        if "test_tutorial.py" in ELSEWHERE[each]:
            step = next(step for words, step in STEPS.items() if words in each)
            step(pi, each)
    received = [event["id"] for event in events(pi)]
    assert len(received) == len(set(received)) >= 3, "each once"
    assert "release 1" in pi.run("edge/bin/python edgerun.pyz status")


@pytest.mark.needs(program="systemd-analyze")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    path = tmp_path / UNIT
    path.write_text(FILES[UNIT].replace("/home/pi/edge/bin/python", sys.executable))
    done = analyze("verify", "--man=no", str(path))
    assert (done.returncode, done.stderr) == (0, "")
