"""A real mosquitto that can be killed and restarted, and a subscriber that takes notes."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, ClassVar

from paho.mqtt import client as paho

from edgekit.device.live.sinks import SinkContext
from edgekit.device.live.types import Event
from tests import requirements

SAVES_EACH_CHANGE = "persistence true\nautosave_on_changes true\nautosave_interval 1\n"


def free_port() -> int:
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def context(home: Path, **changes: Any) -> SinkContext:
    facts: dict[str, Any] = {
        "device_id": "pi-7",
        "bundle_name": "detector",
        "version": "1.2.0",
        "labels": ("person", "car"),
        "sources": {"door": "picture"},
        "rules": {"visitor": "state", "passed": "count"},
        "home": home,
    }
    return SinkContext(**{**facts, **changes})


def event(number: int = 0, kind: str = "on", rule: str = "visitor", **details: Any) -> Event:
    return Event(f"{rule}-{number}", rule, "door", kind, 1000.0 + number, "person", 0.9, number, details)


def until(condition: Callable[[], object], timeout_s: float = 40.0) -> None:
    """Wait until the condition holds; fail if it does not within the time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


class Broker:
    """A mosquitto on a port of its own."""

    all: ClassVar[list[Broker]] = []

    def __init__(self, folder: Path, config: str = SAVES_EACH_CHANGE, listener: str = "") -> None:
        self.program, self.port, self.folder = requirements.program("mosquitto"), free_port(), folder
        folder.mkdir(exist_ok=True)
        folder.chmod(0o777)  # started by root, mosquitto becomes a user of its own
        self.config = folder / "mosquitto.conf"
        access = "" if "allow_anonymous" in config else "allow_anonymous true\n"
        self.config.write_text(
            f"listener {self.port} 127.0.0.1\n{listener}{access}persistence_location {folder}/\nuser root\n{config}"
        )
        self.all.append(self)
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [self.program, "-c", str(self.config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until(self._listens)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def _listens(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        assert self.process.poll() is None, "mosquitto has ended"
        return False


class Proxy:
    """Forwards a port of its own to another one, and can cut its connections or keep back what the server says."""

    def __init__(self, target: int) -> None:
        self._target, self._ends = target, list[socket.socket]()
        self.swallows_answers = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """End every connection."""
        ends, self._ends = self._ends, []
        for each in ends:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    client.close()
                    continue
                self._ends += client, server
                for source, sink, is_answer in ((client, server, False), (server, client, True)):
                    threading.Thread(target=self._forward, args=(source, sink, is_answer), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if not (is_answer and self.swallows_answers):
                    sink.sendall(data)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class Subscriber:
    """A client with a persistent session that connects again by itself and counts each event's id."""

    def __init__(
        self, port: int, topic: str = "edgekit/+/+", name: str = "subscriber", login: tuple[str, str] | None = None
    ) -> None:
        self.arrived: Counter[str] = Counter()
        """How often each id arrived."""
        self.order: list[str] = []
        """Each id when it first arrived."""
        self.redelivered = 0
        """Known ids that the broker itself sent again, as its flag DUP says."""
        self.messages: list[tuple[str, bytes, bool]] = []
        self.subscribed = threading.Event()
        self._topic = topic
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2, name, clean_session=False)
        if login:
            self.client.username_pw_set(*login)
        self.client.reconnect_delay_set(1, 1)
        self.client.on_connect = self._on_connect
        self.client.on_subscribe = lambda *_: self.subscribed.set()
        self.client.on_message = self._on_message
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        assert self.subscribed.wait(40)

    def _on_connect(self, client: paho.Client, *_: Any) -> None:
        client.subscribe(self._topic, 1)

    def _on_message(self, client: paho.Client, data: Any, message: paho.MQTTMessage) -> None:
        self.messages.append((message.topic, message.payload, message.retain))
        with suppress(ValueError, TypeError, KeyError):
            name = json.loads(message.payload)["id"]
            self.redelivered += name in self.arrived and message.dup
            self.order += [name] if name not in self.arrived else []
            self.arrived[name] += 1

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()
