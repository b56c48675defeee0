"""What holds for every sink: it never waits in `send`, closes in time, counts what becomes of events, hides secrets."""

from __future__ import annotations

import importlib
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.live import sinks
from edgekit.device.live.sinks import Sink, mqtt, open_sink, webhook
from edgekit.runner.errors import InputError
from tests import requirements
from tests.device.live.sinks.broker import context, event, free_port, until

SECRET = "s3cret"
NAMES = ("mqtt away", "mqtt silent", "webhook away", "webhook silent", "command", "gpio", "jsonl", "folder")


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture(params=NAMES)
def sink(
    request: pytest.FixtureRequest, tmp_path: Path, silent: int, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Sink]:
    monkeypatch.setenv("SECRET", SECRET)
    monkeypatch.setattr(mqtt, "CONNECT_S", 1.0)
    monkeypatch.setattr(webhook, "ANSWER_S", 1.0)
    kind, _, port = str(request.param).partition(" ")
    number = silent if port == "silent" else free_port()
    if kind == "gpio":
        mock = requirements.package("gpiozero.pins.mock")
        monkeypatch.setattr(requirements.package("gpiozero").Device, "pin_factory", mock.MockFactory())
    options: Mapping[str, Any] = {
        "mqtt": {"to": f"mqtt://user:${{SECRET}}@127.0.0.1:{number}"},
        "webhook": {"to": f"http://user:${{SECRET}}@127.0.0.1:{number}/?token=${{SECRET}}", "secret": "${SECRET}"},
        "command": {"to": "command:", "argv": ["sh", "-c", "sleep 60", "${SECRET}"]},
        "gpio": {"to": "gpio:17"},
        "jsonl": {"to": f"{tmp_path}/events.jsonl"},
        "folder": {"to": f"{tmp_path}/events/"},
    }[kind]
    opened = open_sink(options, context(tmp_path / "home"))
    if port != "silent" and kind not in ("mqtt", "webhook"):
        opened.check()
    yield opened
    opened.close(0.1)


def test_it_never_waits_and_ends_in_time(sink: Sink) -> None:
    assert sink.status().state == "starting"
    threads = threading.active_count()
    sink.start()
    longest = 0.0
    for number in range(200):
        begun = time.monotonic()
        sink.send(event(number, "off" if number % 2 else "on"), bytes(20_000))
        longest = max(longest, time.monotonic() - begun)
    assert longest < 5  # milliseconds, but for what else the machine does
    status = sink.status()
    assert status.sent + status.waiting + status.failed == 200
    until(lambda: sink.status().state in ("running", "retrying") or "silent" in sink.name)
    texts = f"{sink!r} {sink.name} {sink.status()}"
    assert SECRET not in texts and "user" not in texts
    begun = time.monotonic()
    sink.close(0.3)
    assert time.monotonic() - begun < 10, "the receivers would keep it for longer"
    assert sink.status().state == "ended"
    until(lambda: threading.active_count() <= threads, 30)


def test_every_module_is_a_plug_in() -> None:
    folder = Path(sinks.__file__).parent
    helpers = {"__init__", "avi", "base", "clips", "disk_queue", "home_assistant", "mqtt_topics", "network"}
    assert {each.stem for each in folder.glob("*.py")} - helpers == set(sinks.MODULES)
    modules = [importlib.import_module(f"{sinks.__name__}.{name}") for name in sinks.MODULES]
    schemes = [scheme for module in modules for scheme in module.SCHEMES]
    assert len(set(schemes)) == len(schemes)


def test_only_some_events(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    sink = open_sink({"to": str(path), "rules": ["visitor"], "kinds": "on"}, context(tmp_path))
    sink.start()
    for number, (kind, rule) in enumerate([("on", "visitor"), ("off", "visitor"), ("on", "passed")]):
        sink.send(event(number, kind, rule))
    sink.close()
    assert sink.status().sent == 1 and '"id":"visitor-0"' in path.read_text()


@pytest.mark.parametrize(
    ("to", "message"),
    [
        ("mqqt://host", "sink: got the scheme 'mqqt', did you mean \"mqtt\"?"),
        ("xyz://host", "sink: got the scheme 'xyz'; known: mqtt, mqtts, http"),
        ("MQTT://joe:pass word@host", "sink: got the scheme 'MQTT'"),
        (
            "somewhere",
            "sink: got 'somewhere'; use a file that ends in .jsonl, a folder that ends in /, or one of mqtt:",
        ),
        ({"home_assistant": True}, 'sink: "to" is missing; name one'),
        ({"to": 7}, 'sink: "to" is missing; name one'),
        (
            {"to": "mqtt://h", "home_asistant": True},
            "sink mqtt: unknown option 'home_asistant', did you mean \"home_assistant\"?",
        ),
        ({"to": "mqtt://h", "home_assistant": "yes"}, "home_assistant: got 'yes'; use true or false"),
        ({"to": "-", "rules": ["visitr"]}, "sink jsonl: rules: unknown name 'visitr', did you mean \"visitor\"?"),
        ({"to": "-", "rules": 7}, "sink jsonl: rules: got 7; use a name, or a list of names"),
        ({"to": "-", "kinds": ["start"]}, "sink jsonl: kinds: unknown name 'start'; known: on, off, count"),
        ("mqtt://user:pass word@", "mqtt: the address has no host"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, to: Any, message: str) -> None:
    with pytest.raises(InputError) as refused:
        open_sink(to, context(tmp_path))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value) and "pass word" not in str(refused.value)
