"""MQTT 3.1.1 by paho-mqtt: events as JSON on PREFIX/SOURCE/RULE, whatever happens to the broker or the connection.

Topics, with QoS 1 unless stated otherwise:

    PREFIX/SOURCE/RULE                          each event
    PREFIX/device/DEVICE/availability           `online`, and `offline` as the last will; retained
    PREFIX/device/DEVICE/echo                   asks whether all echoes have arrived; QoS 0
    PREFIX/device/DEVICE/state/SOURCE/RULE      with `home_assistant`: ON, OFF or a count; retained
    PREFIX/device/DEVICE/picture/SOURCE         with `home_assistant`: the JPEG file of the last event; retained, QoS 0

What is guaranteed: every event that reached the queue on disk arrives at the broker at least once, in order and with
the same bytes, unless the queue overflows, which is counted. A receiver that ignores an `id` that it knows sees each
event once. QoS 1 alone repeats an event whose acknowledgement is lost with the connection, and loses an acknowledged
one with a broker that is killed before it has saved it. Against both, the sink subscribes to its own events in a
persistent session, and always holds back the acknowledgement of the last echo:

- A broker adds an event to all sessions at once. After a new connection it first sends the echoes that were not
  acknowledged. Events up to the last echo are with the broker, and are not sent again.
- A record stays in the queue for some seconds after its acknowledgement. If the broker was restarted meanwhile from an
  older state, the last echo tells which events it has lost, and these are sent again.

So nothing is repeated over a cut connection or a restart of this device. If a broker is killed, an event that it had
passed on and not saved is repeated, and the broker itself repeats to a subscriber what it does not know to be
acknowledged. A subscriber that must miss nothing needs a persistent session (`clean_session` false) with QoS 1 and a
broker that saves each change: in mosquitto, `persistence true`, `autosave_on_changes true` and `autosave_interval 1`.
"""

from __future__ import annotations

import collections
import json
import os
import socket
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from edgekit.device.live import credentials
from edgekit.device.live.sinks import home_assistant
from edgekit.device.live.sinks.base import (
    Backoff,
    QueueSink,
    SinkContext,
    SinkStatus,
    UnreachableError,
    count_option,
    device_end,
    flag_option,
    text_option,
    to_json,
    wait_until,
)
from edgekit.device.live.sinks.disk_queue import MOST_BYTES, DiskQueue
from edgekit.device.live.sinks.home_assistant import OFFLINE, ONLINE
from edgekit.device.live.sinks.mqtt_topics import Topics
from edgekit.device.live.sinks.network import client_context, connection_error
from edgekit.device.live.types import Event
from edgekit.runner.errors import BackendError, InputError

SCHEMES = ("mqtt", "mqtts")
OPTIONS = (
    "username",
    "password",
    "password_file",
    "ca_file",
    "certificate_file",
    "key_file",
    "home_assistant",
    "discovery_prefix",
    "queue_bytes",
)
PORTS = {"mqtt": 1883, "mqtts": 8883}
CONNECT_S = 5.0
"""How long a connection, its acknowledgement or the position may take."""
KEEPALIVE_S = 30
ACKNOWLEDGE_S = 10.0
"""A connection on which an event is not acknowledged for this long is given up."""
SETTLE_S = 5.0
"""How long a record stays in the queue after its acknowledgement."""
IN_FLIGHT = 20
"""How many events may be sent and not yet acknowledged."""
PAUSES_S = (0.25, 2.0)
LATE_S = 0.3
"""How much later than the answer to our question an echo may arrive."""
RESET = b'{"reset":true}'
"""A record that says that all rules are off, because the process has started."""


@dataclass(frozen=True)
class Settings:
    """How to reach the broker."""

    name: str
    """The address without user name and password."""
    host: str
    port: int
    prefix: str
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    tls: bool = False
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None


def open(address: str, options: Mapping[str, Any], context: SinkContext) -> Mqtt:
    """Return the sink for `mqtt://USER:${PASSWORD}@HOST:PORT/PREFIX`; `mqtts` uses TLS."""
    parts, username, password = credentials.split_address(address)
    name = credentials.without_credentials(address)
    where = f"sink {name}"
    username = credentials.expand(text_option(options, "username", username, where), f"{where}: username")
    password = credentials.expand(text_option(options, "password", password, where), f"{where}: password")
    if "password_file" in options:
        password = credentials.read_secret(text_option(options, "password_file", "", where), f"{where}: password_file")
    if password and not username:
        raise InputError(f"{where}: a password without a user name; add username")
    files = {
        each: text_option(options, each, "", where) or None for each in ("ca_file", "certificate_file", "key_file")
    }
    tls = parts.scheme == "mqtts"
    if any(files.values()) and not tls:
        raise InputError(f"{where}: {next(each for each in files if files[each])} needs TLS; use mqtts://")
    prefix = parts.path.strip("/") or "edgekit"
    if set(prefix) & set("+#") or parts.fragment:
        raise InputError(f"{where}: + and # are for subscriptions; use other characters in the prefix")
    settings = Settings(
        name, parts.hostname or "", parts.port or PORTS[parts.scheme], prefix, username, password, tls, **files
    )
    discovery = text_option(options, "discovery_prefix", home_assistant.PREFIX, where)
    return Mqtt(
        settings,
        context,
        count_option(options, "queue_bytes", MOST_BYTES, where),
        discovery if flag_option(options, "home_assistant", where) else "",
    )


class Mqtt(QueueSink):
    """Publishes events from a queue on disk. `discovery` is the prefix of Home Assistant's topics, or empty."""

    def __init__(
        self, settings: Settings, context: SinkContext, queue_bytes: int = MOST_BYTES, discovery: str = ""
    ) -> None:
        key = zlib.crc32(f"{settings.host}:{settings.port}/{settings.prefix}".encode())
        super().__init__(settings.name, context.home / f"mqtt-{key:08x}", queue_bytes)
        self._settings, self._context, self._discovery = settings, context, discovery
        self._client_id = f"edgekit-{context.device_id}-{key:08x}"
        self._topics = Topics(settings.prefix, context.device_id)
        self._pictures: dict[str, bytes] = {}
        self._counted = self._acknowledged = 0

    def check(self) -> None:
        """Connect once. Raises UnreachableError without an answer, and InputError if the broker or TLS refuses."""
        self._check_queue()
        connection = _Connection(self._settings, f"{self._client_id}-check", threading.Event())
        try:
            connection.open()
        finally:
            connection.close()

    def _open_queue(self) -> DiskQueue:
        queue = super()._open_queue()
        if self._discovery:
            queue.put(RESET)
        return queue

    def status(self) -> SinkStatus:
        """Return what the sink is doing. Records that the broker has do not count as waiting."""
        queue = self._queue
        if queue is None:
            return SinkStatus(self._state, 0, 0, 0)
        waiting = max(0, len(queue) - self._acknowledged)
        return SinkStatus(self._state, self._sent, waiting, queue.dropped, self._problem or queue.problem)

    def _put(self, event: Event, picture: bytes | None) -> None:
        assert self._queue is not None, "start() comes first"
        if picture and self._discovery:
            self._pictures[event.source] = picture
        self._queue.put(to_json(event, self._context))

    def _run(self, queue: DiskQueue) -> None:
        """Connect again and again until the sink is closed. Runs in the thread."""
        backoff = Backoff(*PAUSES_S)
        will = self._topics.availability, OFFLINE
        while not self._closing.is_set():
            connection = _Connection(self._settings, self._client_id, self._wake, will, device_end(self._context))
            try:
                connection.open()
                self._announce(connection)
                unsettled = self._resume(connection, queue)
                self._state, self._problem = "running", ""
                backoff.reset()
                self._publish_all(connection, queue, unsettled)
                connection.publish(*will, retain=True)
            except Exception as error:  # whatever it is, the events wait, and the next connection may work
                self._state, self._problem = "retrying", str(error) or type(error).__name__
            finally:
                connection.close()
            self._closing.wait(backoff.pause_s())

    def _announce(self, connection: _Connection) -> None:
        """Say that this device is there, and what it has for Home Assistant."""
        connection.publish(self._topics.availability, ONLINE, retain=True)
        if self._discovery:
            configs = home_assistant.configs(self._context, self._topics, self._discovery)
            for topic, payload in home_assistant.with_removals(configs, self._folder / "discovery.json").items():
                connection.publish(topic, payload, retain=True)

    def _resume(self, connection: _Connection, queue: DiskQueue) -> _Unsettled:
        """Return the records in the queue that the broker already has. The others are to be sent."""
        topics = [self._topics.event(*pair) for pair in self._context.pairs()]
        echoes = connection.echoes(topics, self._topics.echo, is_asking=queue.after(0) is not None)
        records, last = [], 0
        record = queue.after(0)
        while record and echoes:
            records.append(record)
            last = record[0] if record[1] in echoes else last
            record = queue.after(record[0])
        unsettled: _Unsettled = collections.deque()
        for record in records:
            if record[0] <= last:
                unsettled.append((record[0], time.monotonic()))
                self._count(*record)
        self._acknowledged = len(unsettled)
        return unsettled

    def _publish_all(self, connection: _Connection, queue: DiskQueue, unsettled: _Unsettled) -> None:
        """Publish records as they come, until the sink is closed. Raises UnreachableError when the connection ends."""
        cursor = unsettled[-1][0] if unsettled else 0
        in_flight: dict[int, tuple[int, bytes, float]] = {}
        while not self._closing.is_set():
            while connection.acknowledged:
                sequence, record, _ = in_flight.pop(connection.acknowledged.popleft(), (0, b"", 0.0))
                if sequence:
                    unsettled.append((sequence, time.monotonic()))
                    self._count(sequence, record)
            oldest = next(iter(in_flight.values()), None)
            self._settle(queue, unsettled, oldest[0] if oldest else cursor + 1)
            connection.check_open()
            following = queue.after(cursor) if len(in_flight) < IN_FLIGHT else None
            if following:
                cursor = following[0]
                in_flight[self._publish(connection, following[1])] = (*following, time.monotonic())
                continue
            self._publish_pictures(connection)
            if oldest and time.monotonic() - oldest[2] > ACKNOWLEDGE_S:
                raise UnreachableError(
                    f"sink {self.name}: an event was not acknowledged within {ACKNOWLEDGE_S:g} s; connecting again"
                )
            self._wake.wait(0.5 if oldest or unsettled else 5.0)
            self._wake.clear()

    def _settle(self, queue: DiskQueue, unsettled: _Unsettled, before: int) -> None:
        """Remove the records whose acknowledgement is old enough, and which are older than all that are in flight."""
        settled, limit = 0, time.monotonic() - SETTLE_S
        while unsettled and unsettled[0][1] <= limit and unsettled[0][0] < before:
            settled = unsettled.popleft()[0]
        if settled:
            queue.done(settled)
        self._acknowledged = len(unsettled)

    def _publish(self, connection: _Connection, record: bytes) -> int:
        """Publish all messages of a record. Returns the number of the last that the broker acknowledges."""
        states: Mapping[str, str | None] = {}
        mid = None
        if record == RESET:
            states = home_assistant.initial_states(self._context, self._topics)
        else:
            event = json.loads(record)
            mid = connection.publish(self._topics.event(event["source"], event["rule"]), record)
            if self._discovery:
                states = {self._topics.state(event["source"], event["rule"]): home_assistant.state_of(event)}
        for topic, state in states.items():
            if state is not None:
                mid = connection.publish(topic, state, retain=True)
        if mid is None:  # there is nothing to say, but the record needs an acknowledgement
            mid = connection.publish(self._topics.availability, ONLINE, retain=True)
        return mid

    def _publish_pictures(self, connection: _Connection) -> None:
        """Publish the newest picture of each source. Older ones, and those of a lost connection, are not sent."""
        while self._pictures:
            source, picture = self._pictures.popitem()
            connection.publish(self._topics.picture(source), picture, qos=0, retain=True)

    def _count(self, sequence: int, record: bytes) -> None:
        """Count an event as sent, once."""
        if sequence > self._counted and record != RESET:
            self._sent += 1
        self._counted = max(self._counted, sequence)


_Unsettled = collections.deque[tuple[int, float]]
"""Sequence numbers of records that the broker has acknowledged, and when."""


class _Connection:
    """One connection of paho-mqtt. Its thread only notes what arrives and sets `wake`; it never connects again.

    With `own`, the end of the events of this device, the session is persistent, and of the events that come back the
    last one is not acknowledged.
    """

    def __init__(
        self,
        settings: Settings,
        client_id: str,
        wake: threading.Event,
        will: tuple[str, str] | None = None,
        own: bytes = b"",
    ) -> None:
        client = _paho()
        self._settings, self._wake, self._own = settings, wake, own
        self.acknowledged: collections.deque[int] = collections.deque()
        """Numbers of messages that the broker has acknowledged and nobody has read yet."""
        self._echoes: set[bytes] | None = set()
        self._held: int | None = None
        self._question, self._is_answered = os.urandom(8), False
        self._answer: str | None = None
        self._has_session = False
        self._ended = threading.Event()
        self._client = client.Client(
            client.CallbackAPIVersion.VERSION2,
            client_id,
            clean_session=not own,
            protocol=client.MQTTv311,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        self._client.connect_timeout = CONNECT_S
        self._client.max_inflight_messages_set(0)
        if settings.username:
            self._client.username_pw_set(settings.username, settings.password or None)
        if will:
            self._client.will_set(*will, qos=1, retain=True)
        self._client.on_connect = self._on_connect
        self._client.on_disconnect = self._on_disconnect
        self._client.on_publish = self._on_publish
        self._client.on_message = self._on_message

    def open(self) -> None:
        """Connect and log in."""
        settings = self._settings
        where = f"sink {settings.name}"
        if settings.tls:
            self._client.tls_set_context(
                client_context(where, settings.ca_file, settings.certificate_file, settings.key_file)
            )
        try:
            self._client.connect(settings.host, settings.port, KEEPALIVE_S)
        except OSError as error:
            raise connection_error(error, where, settings.host, settings.port) from None
        self._client.loop_start()
        wait_until(lambda: self._answer is not None or self._ended.is_set(), self._wake, CONNECT_S)
        if self._answer is None:
            why = "closed the connection" if self._ended.is_set() else f"has not answered within {CONNECT_S:g} s"
            raise UnreachableError(
                f"{where}: the server {why}; check that the port is one for MQTT, "
                + ("and whether it asks for a client certificate" if settings.tls else "and whether it needs mqtts://")
            )
        if self._answer:
            given = f"user {settings.username!r}" if settings.username else "no user name"
            raise InputError(f"{where}: the broker refuses {given} ({self._answer}); check username and password_file")

    def check_open(self) -> None:
        """Raise UnreachableError if the connection has ended."""
        if self._ended.is_set():
            raise UnreachableError(f"sink {self._settings.name}: the connection has ended; connecting again")

    def publish(self, topic: str, payload: str | bytes, qos: int = 1, retain: bool = False) -> int:
        """Publish a message. Returns its number."""
        info = self._client.publish(topic, payload, qos, retain)
        if info.rc:
            self.check_open()
            raise UnreachableError(f"sink {self._settings.name}: a message was not taken; connecting again")
        return int(info.mid)

    def echoes(self, topics: Sequence[str], question: str, is_asking: bool) -> set[bytes]:
        """Subscribe to the topics of events. Returns the echoes that an earlier connection has not acknowledged.

        If `is_asking`, and the broker has kept the session, a message to the topic `question` comes back after them.
        """
        self._client.subscribe([(topic, 1) for topic in (*topics, question)])
        if is_asking and self._has_session:
            self.publish(question, self._question, qos=0)
            wait_until(lambda: self._is_answered or self._ended.is_set(), self._wake, CONNECT_S)
            self._ended.wait(LATE_S)
            self.check_open()
        echoes, self._echoes = self._echoes, None
        return echoes or set()

    def close(self) -> None:
        """Send what was published, disconnect and end the thread."""
        self._client.disconnect()
        self._ended.wait(1.0 if self._answer == "" else 0.0)
        with suppress(OSError, AttributeError):  # it may hang, or be closed already
            self._client.socket().shutdown(socket.SHUT_RDWR)
        self._client.loop_stop()

    def _on_connect(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        self._has_session = flags.session_present
        self._answer = str(reason) if reason.is_failure else ""
        self._wake.set()

    def _on_disconnect(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        self._ended.set()
        self._wake.set()

    def _on_publish(self, client: Any, data: Any, mid: int, reason: Any, properties: Any) -> None:
        self.acknowledged.append(mid)
        self._wake.set()

    def _on_message(self, client: Any, data: Any, message: Any) -> None:
        acknowledged: int | None = message.mid
        if message.payload.endswith(self._own):
            acknowledged, self._held = self._held, message.mid
            if self._echoes is not None:
                self._echoes.add(message.payload)
        elif message.payload == self._question:
            self._is_answered = True
            self._wake.set()
        if acknowledged is not None and message.qos:
            client.ack(acknowledged, 1)


def _paho() -> Any:
    """Return paho-mqtt's module, or raise BackendError."""
    try:
        from paho.mqtt import client
    except ImportError:
        raise BackendError("mqtt: paho-mqtt is missing; run pip install 'paho-mqtt>=2'") from None
    if not hasattr(client, "CallbackAPIVersion"):
        raise BackendError("mqtt: paho-mqtt is older than 2.0; run pip install 'paho-mqtt>=2'")
    return client
