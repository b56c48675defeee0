"""The tutorial from a camera to a switch: its own commands and files, on a film and with a broker that asks for passwords.

Only the camera, the broker's address, the page's port and the path of Python are other than on the page.
"""

from __future__ import annotations

import io
import json
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

from edgekit.device import pyz
from tests import requirements
from tests.conftest import ROOT
from tests.deploy.test_unit import analyze
from tests.device.live import door
from tests.device.live.running import PATIENCE_S, Live, environment
from tests.device.live.sinks.broker import Broker, Subscriber
from tests.docs import pages
from tests.docs.commands import ELSEWHERE

PAGE = ROOT / "docs" / "tutorials" / "camera-to-switch.md"
FILES = {block.title: block.text for block in pages.blocks(PAGE) if block.title}
UNIT = "edgerun-live.service"
EVENTS = "edgekit/door/visitor"
PASSWORD = "correct horse"
YELLOW = 300
"""Pixels of a box's colour, at least, in a picture with one."""


@pytest.fixture(scope="session")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return door.film(tmp_path_factory.mktemp("door") / "door.mp4")


@dataclass(frozen=True)
class Pi:
    """The home folder of a device on which the tutorial is followed."""

    folder: Path
    broker: Broker
    start: Callable[..., Live]

    def as_here(self, text: str) -> str:
        """A command or file of the page with the film and the broker of this test."""
        for said, meant in (
            ("v4l2:/dev/video0", "door.mp4"),
            ("homeassistant.local", f"127.0.0.1:{self.broker.port}"),
            ("--page 8080", "--page 0"),
            ("page: 8080", "page: 0"),
            ("/home/pi/edge/bin/python", sys.executable),
            ("edge/bin/python", sys.executable),
            ("/home/pi", str(self.folder)),
        ):
            text = text.replace(said, meant)
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


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "pi" / ".edge"


@pytest.fixture
def pi(tmp_path: Path, home: Path, film: Path, live: Callable[..., Live]) -> Iterator[Pi]:
    folder, passwords = home.parent, tmp_path / "passwords"
    folder.mkdir()
    pyz.build(folder / "edgerun.pyz")
    door.detector(folder / "detector-onnx-1.0.0.edge.zip")
    (folder / "door.mp4").symlink_to(film)
    passwords.touch()
    subprocess.run([requirements.program("mosquitto_passwd"), "-b", passwords, "door", PASSWORD], check=True)
    subprocess.run([requirements.program("mosquitto_passwd"), "-b", passwords, "assistant", PASSWORD], check=True)
    broker = Broker(tmp_path / "broker", f"allow_anonymous false\npassword_file {passwords}\n")
    yield Pi(folder, broker, live)
    broker.kill()


@pytest.fixture
def assistant(pi: Pi) -> Iterator[Subscriber]:
    """Listens to everything, as Home Assistant may."""
    client = Subscriber(pi.broker.port, "#", login=("assistant", PASSWORD))
    yield client
    client.close()


def shows_a_box(run: Live) -> bool:
    """Whether the picture of the page has a frame in the colour of the first class."""
    data = run.ask("/picture.jpg?source=door").text.encode("latin-1")  # type: ignore[attr-defined]
    pixels = np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).astype(int)
    yellow = (pixels[..., 0] > 180) & (pixels[..., 1] > 170) & (pixels[..., 2] < 140)
    return int(yellow.sum()) > YELLOW


def messages(assistant: Subscriber, topic: str) -> list[tuple[str, Any]]:
    """The JSON messages on topics that match."""
    found = [(name, payload) for name, payload, _ in assistant.messages if re.fullmatch(topic, name) and payload]
    return [(name, json.loads(payload)) for name, payload in found]


def looks(pi: Pi, command: str, assistant: Subscriber) -> None:
    run = pi.begin(command)
    run.until(lambda: shows_a_box(run))
    assert run.stop(signal.SIGINT)[0] == 0


def tries_the_rule(pi: Pi, command: str, assistant: Subscriber) -> None:
    run = pi.begin(command)
    run.until(lambda: len(run.out) == 2)
    for line, printed in zip(run.out, ("on: person \\d+%", "off: person"), strict=True):
        assert re.fullmatch(rf"\d\d:\d\d:\d\d door visitor {printed}", line), line
    assert run.stop(signal.SIGINT)[0] == 0


def writes_the_password(pi: Pi, command: str, assistant: Subscriber) -> None:
    path = pi.folder / command.split()[-1]
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text(f"{PASSWORD}\n")


def publishes(pi: Pi, command: str, assistant: Subscriber) -> None:
    run = pi.begin(command)
    run.until(lambda: shows_a_box(run))
    run.until(lambda: len(messages(assistant, EVENTS)) == 2)
    assert run.stop(signal.SIGINT)[0] == 0
    assert PASSWORD not in "\n".join([*run.said, *run.out])
    events = [event for _, event in messages(assistant, EVENTS)]
    assert [(event["kind"], event["label"]) for event in events] == [("on", "person"), ("off", "person")]
    configs = {name.split("/")[1]: config for name, config in messages(assistant, "homeassistant/.*/config")}
    assert set(configs) == {"binary_sensor", "camera"}
    sensor = configs["binary_sensor"]
    assert [payload for name, payload, _ in assistant.messages if name == sensor["state_topic"]] == [
        b"OFF", b"ON", b"OFF",
    ]  # fmt: skip
    assert f"the sensor `{sensor['name']}`" in PAGE.read_text()
    assert sensor["device"]["name"] == socket.gethostname()
    entity = f"binary_sensor.raspberrypi_{sensor['name'].replace(' ', '_')}"  # if the Pi is called so
    assert yaml.safe_load(FILES["automation.yaml"])["triggers"][0]["entity_id"] == entity


def serves(pi: Pi, command: str, assistant: Subscriber) -> None:
    """What the unit starts."""
    before = len(messages(assistant, EVENTS))
    [start] = re.findall("^ExecStart=(.*)$", FILES[UNIT], re.MULTILINE)
    run = pi.begin(start)
    run.until(lambda: len(messages(assistant, EVENTS)) > before)
    assert messages(assistant, EVENTS)[-1][1]["kind"] == "on"
    assert run.stop()[0] == 0


def ends(pi: Pi, command: str, assistant: Subscriber) -> None:
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
def test_the_commands_of_the_page_switch_home_assistant(pi: Pi, assistant: Subscriber) -> None:
    for name in ("live.yaml", UNIT):
        (pi.folder / name).write_text(pi.as_here(FILES[name]))
    for each in pages.commands(PAGE):
        if "test_tutorial.py" in ELSEWHERE[each]:
            step = next(step for words, step in STEPS.items() if words in each)
            step(pi, each, assistant)
    received = [event["id"] for _, event in messages(assistant, EVENTS)]
    assert len(received) == len(set(received)) >= 3, "each once"
    assert "release 1" in pi.run("edge/bin/python edgerun.pyz status")


@pytest.mark.needs(program="systemd-analyze")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    path = tmp_path / UNIT
    path.write_text(FILES[UNIT].replace("/home/pi/edge/bin/python", sys.executable))
    done = analyze("verify", "--man=no", str(path))
    assert (done.returncode, done.stderr) == (0, "")
