"""Topics of a real broker (mosquitto), with paho-mqtt."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from edgekit.runner.errors import InputError
from tests import requirements
from tests.device.live.sinks.test_mqtt import make_certificates
from tests.device.live.sources import cameras

pytestmark = [pytest.mark.needs(program="mosquitto"), pytest.mark.needs(package="paho")]


class Broker:
    """mosquitto on a port that stays the same, for the user joe alone."""

    def __init__(self, folder: Path, more: str = "") -> None:
        self.port, self.folder = cameras.free_port(), folder
        self.mosquitto = requirements.program("mosquitto")
        passwords = folder / "passwords"
        passwords.touch()
        command = ["mosquitto_passwd", "-b", str(passwords), "joe", "p@ss"]
        subprocess.run([requirements.program("mosquitto_passwd"), *command[1:]], check=True, capture_output=True)
        config = f"listener {self.port} 127.0.0.1\nallow_anonymous false\npassword_file {passwords}\nuser root\n{more}"
        (folder / "mosquitto.conf").write_text(config)
        self.start()

    def start(self) -> None:
        command = [self.mosquitto, "-c", str(self.folder / "mosquitto.conf")]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 40
        while self.process.poll() is None and time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.02)
        raise AssertionError("mosquitto does not listen")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def publish(self, *messages: Any) -> None:
        from paho.mqtt import publish

        items = [("hall/1", message, 0, False) for message in messages]
        publish.multiple(items, "127.0.0.1", self.port, auth={"username": "joe", "password": "p@ss"})


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path)
    yield broker
    broker.stop()


def test_rows_and_a_broker_that_is_killed(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER_PASSWORD", "p@ss")
    address = f"mqtt://joe:${{BROKER_PASSWORD}}@127.0.0.1:{broker.port}/hall/+"
    source = cameras.source_of(address, cameras.VECTOR)
    source.check()
    broker.publish("1,2", '{"x": 3, "y": 4}')
    cameras.status_with(source, frames=2)
    broker.publish("[5, 6]")
    assert cameras.frames_of(source, 1)[-1].data.tolist() == [5.0, 6.0]
    broker.publish("nothing")
    cameras.status_with(source, detail="left out: 1; the last: got 'nothing'; send 2 numbers a line: x, y")
    broker.stop()
    cameras.status_with(source, state="reconnecting")
    time.sleep(2.0)
    broker.start()
    returned_s = time.monotonic()
    while source.status().frames == 3:
        assert time.monotonic() - returned_s < 10.0, "five seconds, but for what else the machine does"
        broker.publish("7 8")
        time.sleep(0.1)
    status = source.status()
    source.close()
    assert (status.state, status.reconnects) == ("running", 1)
    assert "p@ss" not in str(status)


@pytest.mark.needs(package="PIL")
def test_pictures(broker: Broker) -> None:
    source = cameras.source_of(f"mqtt://joe:p%40ss@127.0.0.1:{broker.port}/hall/1")
    source.check()
    broker.publish(cameras.grey_jpeg(77, (40, 30)))
    (frame,) = cameras.frames_of(source, 1)
    broker.publish(b"no picture")
    while not source.status().detail:
        source.newest(0.05)
    status = source.status()
    source.close()
    assert frame.data.shape == (30, 40, 3)
    assert cameras.grey_of(frame) == 77
    assert "a message of 10 bytes is no picture" in status.detail


def test_tls_with_a_certificate_of_ones_own(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    port = cameras.free_port()
    files = f"cafile {tmp_path}/ca.pem\ncertfile {tmp_path}/server.pem\nkeyfile {tmp_path}/server.key\n"
    broker = Broker(tmp_path, f"listener {port} localhost\nallow_anonymous true\n{files}")
    try:
        address = f"mqtts://joe:p%40ss@localhost:{port}/hall/+"
        source = cameras.source_of(address, cameras.VECTOR, ca_file=str(tmp_path / "ca.pem"))
        source.check()
        broker.publish("1,2")
        assert cameras.frames_of(source, 1)[0].data.tolist() == [1.0, 2.0]
        source.close()
        for ca_file, expected in (
            ("", "certificate verify failed"),
            (str(tmp_path / "none.pem"), "ca_file: .*none.pem: No such file"),
            (str(tmp_path / "names"), "ca_file: .*names: .*; name a file in PEM format"),
        ):
            with pytest.raises(InputError, match=expected) as caught:
                cameras.source_of(address, cameras.VECTOR, ca_file=ca_file).check()
            assert "\n" not in str(caught.value)
    finally:
        broker.stop()
    with pytest.raises(InputError, match="ca_file: only mqtts:// takes one"):
        cameras.source_of("mqtt://broker/x", cameras.VECTOR, ca_file="ca.pem")


def test_bad_input_is_one_line(broker: Broker) -> None:
    for address, expected in (
        (f"mqtt://joe:wr0ng@127.0.0.1:{broker.port}/x", "the broker refuses"),
        (f"mqtt://127.0.0.1:{cameras.free_port()}/x", "Connection refused"),
        ("mqtt://broker.invalid/x", "check the broker's host"),
    ):
        with pytest.raises(InputError, match=expected) as caught:
            cameras.source_of(address, cameras.VECTOR).check()
        assert "\n" not in str(caught.value)
        assert "wr0ng" not in str(caught.value)
    for address, expected in ((f"mqtt://127.0.0.1:{broker.port}", "no topic"), ("mqtt:///x", "no host")):
        with pytest.raises(InputError, match=expected):
            cameras.source_of(address, cameras.VECTOR)
