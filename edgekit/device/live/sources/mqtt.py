"""Pictures or rows from topics of an MQTT broker: `mqtt://user:${PASSWORD}@broker:1883/sensors/+/values`.

A message is a picture as JPEG, PNG or WebP, or a row as `rows.RowParser` reads it. `mqtts://` uses TLS with the
certificates of the system, or that of `ca_file`. Needs the package paho-mqtt.
"""

from __future__ import annotations

import io
import queue
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np

from edgekit.device.live.sources import address, base, rows
from edgekit.runner.errors import InputError
from edgekit.runner.inputs import picture

if TYPE_CHECKING:
    from edgekit.device.live.sources.address import Address
    from edgekit.device.live.sources.options import SourceOptions
    from edgekit.runner.bundle.manifest import RawSpec

SCHEMES = ("mqtt", "mqtts")
MOST_WAITING = 100
POLL_S = 0.2
CONNECT_S = 10.0
REFUSALS = {4: "wrong user name or password", 5: "not allowed", 134: "wrong user name or password", 135: "not allowed"}
"""Codes of MQTT 3.1.1 and 5.0 (3.2.2.3 and 3.2.2.2)."""
DECODE_STEP = {"step": "decode_picture", "orientation": "apply", "channels": 3}


class MqttSource(rows.RowSource):
    """Frames from the messages of a topic."""

    def __init__(self, address: Address, options: SourceOptions, raw: RawSpec) -> None:
        self.kind = base.PICTURE if raw.kind == "image" else base.ROWS
        self._topic = unquote(address.rest.partition("/")[2])
        super().__init__(address, options, raw)

    def _connect(self) -> Iterator[np.ndarray]:
        messages: queue.Queue[bytes | str] = queue.Queue(MOST_WAITING)
        client = self._client(messages)
        host, port = self.address.host
        try:
            client.connect(host, port or (8883 if self.address.scheme == "mqtts" else 1883), keepalive=15)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InputError(f"{self.address.shown}: {reason}; check the broker's host and port") from None
        client.loop_start()
        try:
            yield from self._frames(messages)
        finally:
            client.disconnect()
            client.loop_stop()

    def _frames(self, messages: queue.Queue[bytes | str]) -> Iterator[np.ndarray]:
        parse, samples = rows.RowParser(self.raw), rows.RowSamples(self.raw, self.options.hop)
        while not self._closed.is_set():
            try:
                message = messages.get(timeout=POLL_S)
            except queue.Empty:
                continue
            if isinstance(message, str):
                raise InputError(f"{self.address.shown}: {message}")
            try:
                if self.kind == base.PICTURE:
                    yield decode(message)
                else:
                    row = parse(message.decode(errors="replace"))
                    yield from samples.push(row) if row is not None else ()
            except InputError as error:
                self._ignore(error)

    def _client(self, messages: queue.Queue[bytes | str]) -> Any:
        """Return a client that puts messages into the queue, and a text when the connection ends."""
        from paho.mqtt import client as paho

        client = paho.Client(paho.CallbackAPIVersion.VERSION2) if hasattr(paho, "CallbackAPIVersion") else paho.Client()
        if self.address.username or self.address.password:
            client.username_pw_set(self.address.username, self.address.password or None)
        if self.address.scheme == "mqtts":
            try:
                client.tls_set(self.options.ca_file or None)
            except OSError as error:
                raise InputError(
                    f"{self.address.shown}: ca_file: {self.options.ca_file}: {error.strerror or error}; name a file in "
                    "PEM format"
                ) from None

        def on_connect(client: Any, data: Any, flags: Any, code: Any, *rest: Any) -> None:
            number = getattr(code, "value", code)
            if number:
                fix = "check user name and password, and the broker's list of rights"
                _put(messages, f"the broker refuses: {REFUSALS.get(number, code)}; {fix}")
            else:
                client.subscribe(self._topic, qos=0)

        def on_subscribe(client: Any, data: Any, number: Any, codes: Any, *rest: Any) -> None:
            if any(getattr(code, "value", code) >= 128 for code in codes):
                _put(messages, f"the broker refuses the topic {self._topic}; check its list of rights")
            else:
                self._ready.set()

        client.on_connect, client.on_subscribe = on_connect, on_subscribe
        client.on_message = lambda client, data, message: _put(messages, bytes(message.payload))
        client.on_disconnect = lambda *rest: _put(messages, "the broker ended the connection")
        return client


def decode(data: bytes) -> np.ndarray:
    """Return the picture of a message, upright, as uint8 (height, width, 3). Raises InputError if it is none."""
    Image = picture.import_pillow("pictures from MQTT", "send rows of numbers")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=picture.FORMATS) as image:
                problem = picture.unsupported_reason(image)
                if problem is None:
                    return picture.decode(image, [DECODE_STEP])
    except Exception as error:  # Pillow lets its parsers' errors through: struct.error, KeyError, …
        problem = str(error) or type(error).__name__
    raise InputError(f"a message of {len(data)} bytes is no picture ({problem}); send JPEG or PNG")


def _put(messages: queue.Queue[bytes | str], message: bytes | str) -> None:
    """Add a message; the oldest one makes way if too many wait."""
    while True:
        with suppress(queue.Full):
            messages.put_nowait(message)
            return
        with suppress(queue.Empty):
            messages.get_nowait()


def open(text: str, options: SourceOptions, raw: RawSpec) -> MqttSource:
    """Return the source for a topic. Raises InputError if paho-mqtt is missing, or the address has no topic."""
    parsed = address.parse(text, options)
    parsed.check_host()
    try:
        import paho.mqtt.client  # noqa: F401
    except ImportError:
        install = "pip install paho-mqtt, or sudo apt install python3-paho-mqtt"
        raise InputError(f"{parsed.shown}: the package paho-mqtt is not installed; run: {install}") from None
    if not parsed.rest.partition("/")[2]:
        raise InputError(f"{parsed.shown}: no topic; use {parsed.scheme}://broker:1883/the/topic")
    return MqttSource(parsed, options, raw)
