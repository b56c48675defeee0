"""Events over MQTT with a real mosquitto that is killed, cut and restarted, with TLS, passwords and a last will."""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.live.sinks import Sink, UnreachableError, mqtt, open_sink
from edgekit.runner.errors import InputError, ResourceError
from tests import requirements
from tests.device.live.sinks.broker import Broker, Proxy, Subscriber, context, event, free_port, until

SECRET = "s3cret/with@signs"
SENDS_UNTIL_KILLED = """
import itertools, pathlib, sys, time
from edgekit.device.live.sinks import open_sink
from tests.device.live.sinks.broker import context, event
sink = open_sink(sys.argv[1], context(pathlib.Path(sys.argv[2])))
sink.start()
for number in itertools.count(int(sys.argv[3])):
    sink.send(event(number))
    while sink._queue._unwritten():
        time.sleep(0.001)
    print(number, flush=True)
    time.sleep(0.003)
"""


@contextmanager
def started(sink: Sink) -> Iterator[Sink]:
    sink.start()
    try:
        yield sink
    finally:
        sink.close(1.0)


def delivers_while_killed(folder: Path, kills: int) -> tuple[int, Subscriber]:
    """Send events while the broker is killed and restarted, always with a connection in use.

    Returns how many, and who received them.
    """
    broker, choose = Broker(folder / "broker"), random.Random(5)
    subscriber, count = Subscriber(broker.port), 0
    with started(open_sink(f"mqtt://127.0.0.1:{broker.port}/edgekit", context(folder))) as sink:
        for _ in range(kills):
            end, latest = 0.0, time.monotonic() + 60
            while not end or time.monotonic() < end:
                sink.send(event(count))
                count += 1
                time.sleep(0.015)
                if not end and sink.status().state == "running":
                    end = time.monotonic() + choose.uniform(0.1, 0.9)
                assert time.monotonic() < latest, sink.status()
            broker.kill()
            time.sleep(choose.uniform(0, 0.3))
            broker.start()
        until(lambda: len(subscriber.arrived) == count and not sink.status().waiting, 300)
        assert sink.status().sent == count and sink.status().failed == 0
    subscriber.close()
    return count, subscriber


def check_once(count: int, subscriber: Subscriber, kills: int) -> None:
    """Every event arrived in order. Repetitions have a known id, and are those that were under way in a kill."""
    assert subscriber.order == [f"visitor-{number}" for number in range(count)]
    repeated = sum(subscriber.arrived.values()) - count
    assert repeated - subscriber.redelivered <= mqtt.IN_FLIGHT * kills
    assert len({payload for _, payload, _ in subscriber.messages}) == count, "a repetition has the same bytes"


def test_every_event_arrives_while_the_broker_is_killed(tmp_path: Path) -> None:
    check_once(*delivers_while_killed(tmp_path, 4), 4)


@pytest.mark.long
def test_every_event_arrives_in_200_kills(tmp_path: Path) -> None:
    begun = time.monotonic()
    count, subscriber = delivers_while_killed(tmp_path, 200)
    repeated = sum(subscriber.arrived.values()) - count
    print(
        f"\n200 kills, {count} events, {count - len(subscriber.arrived)} lost, {repeated} repetitions, "
        f"{subscriber.redelivered} of them by the broker; {time.monotonic() - begun:.0f} s"
    )
    check_once(count, subscriber, 200)


def test_nothing_is_repeated_over_cut_connections(tmp_path: Path, broker: Broker, subscriber: Subscriber) -> None:
    """Acknowledgements that are lost with a connection do not make the sink send an event again."""
    proxy, count = Proxy(broker.port), 0
    with started(open_sink(f"mqtt://127.0.0.1:{proxy.port}/edgekit", context(tmp_path))) as sink:
        for attempt in range(6):
            until(lambda: sink.status().state == "running")
            for number in range(30):
                proxy.swallows_answers = number >= 15 and attempt % 2 == 0
                sink.send(event(count))
                count += 1
                time.sleep(0.004)
            proxy.cut()
            proxy.swallows_answers = False
        until(lambda: not sink.status().waiting)
        until(lambda: len(subscriber.arrived) == count)
    proxy.close()
    assert subscriber.order == [f"visitor-{number}" for number in range(count)]
    assert set(subscriber.arrived.values()) == {1}


def test_a_connection_that_hangs_is_given_up(
    tmp_path: Path, broker: Broker, subscriber: Subscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt, "ACKNOWLEDGE_S", 0.5)
    monkeypatch.setattr(mqtt, "CONNECT_S", 1.0)
    proxy = Proxy(broker.port)
    with started(open_sink(f"mqtt://127.0.0.1:{proxy.port}/edgekit", context(tmp_path))) as sink:
        until(lambda: sink.status().state == "running")
        proxy.swallows_answers = True
        sink.send(event(1))
        until(lambda: sink.status().state == "retrying")
        assert sink.status().waiting == 1
        proxy.swallows_answers = False
        until(lambda: sink.status().sent == 1)
    proxy.close()
    assert subscriber.arrived == {"visitor-1": 1}


def test_nothing_is_repeated_when_the_device_is_killed(tmp_path: Path, broker: Broker, subscriber: Subscriber) -> None:
    address, queued = f"mqtt://127.0.0.1:{broker.port}/edgekit", []
    for base in range(0, 40_000, 10_000):
        process = subprocess.Popen(
            [sys.executable, "-c", SENDS_UNTIL_KILLED, address, str(tmp_path), str(base)], stdout=subprocess.PIPE
        )
        assert process.stdout
        lines = [process.stdout.readline() for _ in range(60)]
        process.kill()
        lines += process.stdout.readlines()
        process.wait()
        queued += [f"visitor-{int(line)}" for line in lines if line.endswith(b"\n")]
    with started(open_sink(address, context(tmp_path))) as sink:
        until(lambda: sink.status().state == "running" and not sink.status().waiting)
        until(lambda: set(queued) <= set(subscriber.arrived))
    assert set(subscriber.arrived.values()) == {1}


def test_events_wait_for_the_broker_over_a_restart(tmp_path: Path) -> None:
    folder, port = tmp_path / "broker", free_port()
    with started(open_sink(f"mqtt://127.0.0.1:{port}/edgekit", context(tmp_path))) as sink:
        for number in range(5):
            sink.send(event(number))
        until(lambda: sink.status().state == "retrying")
        assert sink.status().waiting == 5 and f"nothing listens on 127.0.0.1:{port}" in sink.status().detail
        for begin in ("check", "start"):
            with pytest.raises(ResourceError, match="this queue is in use"):
                getattr(open_sink(f"mqtt://127.0.0.1:{port}/edgekit", context(tmp_path)), begin)()
    Broker(folder, listener=f"allow_anonymous true\nlistener {port} 127.0.0.1\n")
    subscriber = Subscriber(port)
    with started(open_sink(f"mqtt://127.0.0.1:{port}/edgekit", context(tmp_path))):
        until(lambda: len(subscriber.order) == 5)
    assert subscriber.arrived == {f"visitor-{number}": 1 for number in range(5)}
    topic, payload, retained = subscriber.messages[0]
    assert (topic, retained) == ("edgekit/door/visitor", False)
    assert json.loads(payload) == {**event(0).to_dict(), "device": "pi-7"}
    subscriber.close()


def test_a_queue_that_is_removed_suppresses_nothing(tmp_path: Path, broker: Broker, subscriber: Subscriber) -> None:
    """The broker still has the position of the former queue, which counted higher."""
    address = f"mqtt://127.0.0.1:{broker.port}/edgekit"
    for home, numbers in (("a", range(30)), ("b", range(100, 103))):
        with started(open_sink(address, context(tmp_path / home))) as sink:
            for number in numbers:
                sink.send(event(number))
            until(lambda: not sink.status().waiting and sink.status().state == "running")
    until(lambda: len(subscriber.order) == 33)


def test_a_full_queue_counts_what_it_drops(tmp_path: Path) -> None:
    options = {"to": f"mqtt://127.0.0.1:{free_port()}/edgekit", "queue_bytes": 4000}
    with started(open_sink(options, context(tmp_path))) as sink:
        for number in range(100):
            sink.send(event(number))
        status = sink.status()
        assert status.failed > 0 and status.failed + status.waiting == 100


def test_the_will_says_that_the_device_is_gone(tmp_path: Path, broker: Broker) -> None:
    watcher = Subscriber(broker.port, "edgekit/device/pi-7/availability", "watcher")
    address = f"mqtt://127.0.0.1:{broker.port}/edgekit"

    def availability() -> list[bytes]:
        return [payload for _, payload, _ in watcher.messages]

    sink = open_sink(address, context(tmp_path))
    sink.start()
    until(lambda: availability() == [b"online"])
    sink.close()
    until(lambda: availability() == [b"online", b"offline"])
    process = subprocess.Popen(
        [sys.executable, "-c", SENDS_UNTIL_KILLED, address, str(tmp_path), "0"], stdout=subprocess.DEVNULL
    )
    until(lambda: availability()[2:] == [b"online"])
    process.kill()
    process.wait()
    until(lambda: availability()[3:] == [b"offline"])
    watcher.close()
    later = Subscriber(broker.port, "edgekit/device/pi-7/availability", "later")
    until(lambda: later.messages == [("edgekit/device/pi-7/availability", b"offline", True)])
    later.close()


def test_names_with_reserved_characters(tmp_path: Path, broker: Broker) -> None:
    subscriber = Subscriber(broker.port, "#")
    with started(open_sink(f"mqtt://127.0.0.1:{broker.port}", context(tmp_path, device_id="a/b"))) as sink:
        sink.send(event(1, rule="a+b/#"))
        until(lambda: "edgekit/door/a_b__" in [topic for topic, _, _ in subscriber.messages])
        assert "edgekit/device/a_b/availability" in [topic for topic, _, _ in subscriber.messages]
    subscriber.close()


@pytest.fixture
def locked(tmp_path: Path) -> Broker:
    """A broker that asks for a password."""
    passwords = tmp_path / "passwords"
    passwords.touch()
    subprocess.run([requirements.program("mosquitto_passwd"), "-b", passwords, "camera", SECRET], check=True)
    return Broker(tmp_path / "locked", f"allow_anonymous false\npassword_file {passwords}\n")


def texts_of(sink: Sink) -> str:
    return f"{sink!r} {sink.name} {sink.status()} {vars(sink)}"


def test_passwords(tmp_path: Path, locked: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    host = f"127.0.0.1:{locked.port}"
    monkeypatch.setenv("BROKER_PASSWORD", SECRET)
    (tmp_path / "password").write_text(f"{SECRET}\n")
    right: list[Any] = [
        f"mqtt://camera:${{BROKER_PASSWORD}}@{host}/edgekit",
        {"to": f"mqtt://camera@{host}/edgekit", "password_file": str(tmp_path / "password")},
        {"to": f"mqtt://{host}/edgekit", "username": "camera", "password": "${BROKER_PASSWORD}"},
        "mqtt://camera:s3cret%2Fwith%40signs@" + host,
    ]
    for to in right:
        sink = open_sink(to, context(tmp_path))
        sink.check()
        assert SECRET not in texts_of(sink) and "s3cret" not in texts_of(sink)
    for to, user in ((f"mqtt://camera:s3cre@{host}", "user 'camera'"), (f"mqtt://{host}", "no user name")):
        sink = open_sink(to, context(tmp_path))
        with pytest.raises(InputError, match=f"the broker refuses {user} .*; check username") as refused:
            sink.check()
        assert "s3cre" not in str(refused.value) and "\n" not in str(refused.value)
        assert not isinstance(refused.value, UnreachableError)
    with started(open_sink(f"mqtt://camera:wrong-one@{host}", context(tmp_path))) as sink:
        sink.send(event(1))
        until(lambda: sink.status().state == "retrying")
        assert "refuses user 'camera'" in sink.status().detail and "wrong-one" not in texts_of(sink)


def test_passwords_that_are_not_there(tmp_path: Path) -> None:
    for to, message in (
        ("mqtt://camera:${NO_SUCH_VARIABLE}@host", "password: the variable NO_SUCH_VARIABLE is not set"),
        ({"to": "mqtt://camera@host", "password_file": f"{tmp_path}/no"}, "password_file: .*No such file"),
        ({"to": "mqtt://host", "password": "x"}, "a password without a user name"),
        ({"to": "mqtt://host", "ca_file": "x"}, "ca_file needs TLS; use mqtts://"),
        ({"to": "mqtt://host", "password": 7}, "password: got a int; use a text in quotes"),
    ):
        with pytest.raises(InputError, match=message):
            open_sink(to, context(tmp_path))


def make_certificates(folder: Path) -> None:
    """A CA, and certificates by it for the host `localhost` and for a client."""
    openssl = requirements.program("openssl")

    def run(*words: str) -> None:
        subprocess.run([openssl, *words], cwd=folder, check=True, capture_output=True)

    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    for name in ("ca", "other"):
        run(
            "req",
            "-x509",
            *curve,
            "-keyout",
            f"{name}.key",
            "-out",
            f"{name}.pem",
            "-days",
            "2",
            "-subj",
            f"/CN={name}",
        )
    (folder / "names").write_text("subjectAltName=DNS:localhost\n")
    for name in ("server", "client"):
        run("req", *curve, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
        run("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signed)


def test_tls(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    port, strict = free_port(), free_port()
    files = f"cafile {tmp_path}/ca.pem\ncertfile {tmp_path}/server.pem\nkeyfile {tmp_path}/server.key\n"
    listeners = "".join(
        f"listener {each} localhost\nallow_anonymous true\n{files}{more}"
        for each, more in ((port, ""), (strict, "require_certificate true\n"))
    )
    broker = Broker(tmp_path / "broker", listener=f"allow_anonymous true\n{listeners}")
    ours, theirs = str(tmp_path / "ca.pem"), str(tmp_path / "other.pem")
    client = {"certificate_file": str(tmp_path / "client.pem"), "key_file": str(tmp_path / "client.key")}
    subscriber = Subscriber(broker.port)

    def opened(where: str, **options: str) -> Sink:
        return open_sink({"to": f"mqtts://{where}/edgekit", **options}, context(tmp_path))

    for number, sink in enumerate(
        (opened(f"localhost:{port}", ca_file=ours), opened(f"localhost:{strict}", ca_file=ours, **client))
    ):
        sink.check()
        with started(sink):
            sink.send(event(number))
            until(lambda: not sink.status().waiting)  # noqa: B023
    until(lambda: len(subscriber.order) == 2)
    for sink, message in (
        (opened(f"localhost:{port}"), "the certificate of localhost is refused .*; give the file of its CA"),
        (opened(f"localhost:{port}", ca_file=theirs), "the certificate of localhost is refused"),
        (opened(f"127.0.0.1:{port}", ca_file=ours), "the certificate of 127.0.0.1 is refused .*IP address mismatch"),
        (opened(f"localhost:{strict}", ca_file=ours), "whether it asks for a client certificate"),
        (opened(f"localhost:{broker.port}", ca_file=ours), "ended the connection; check the port, and whether it uses"),
        (opened(f"localhost:{port}", ca_file=f"{tmp_path}/no.pem"), "ca_file: .*no.pem: No such file"),
        (opened(f"localhost:{port}", ca_file=f"{tmp_path}/names"), "ca_file: .*names: .*; name a file in PEM format"),
        (opened(f"localhost:{port}", **{**client, "key_file": ours}), "certificate_file: .*client.pem: "),
        (open_sink(f"mqtt://localhost:{port}", context(tmp_path)), "whether it needs mqtts://"),
    ):
        with pytest.raises(InputError, match=message) as refused:
            sink.check()
        assert "\n" not in str(refused.value)
    subscriber.close()


def test_servers_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt, "CONNECT_S", 0.5)
    silent = socket.create_server(("127.0.0.1", 0))
    nothing = free_port()
    for address, message in (
        ("mqtt://no-such-host.invalid/edgekit", "no host 'no-such-host.invalid' is known; check the name"),
        (f"mqtt://127.0.0.1:{nothing}", f"nothing listens on 127.0.0.1:{nothing}; start the server"),
        (f"mqtt://127.0.0.1:{silent.getsockname()[1]}", "has not answered within 0.5 s; check that the port is one"),
    ):
        with pytest.raises(UnreachableError, match=message):
            open_sink(address, context(tmp_path)).check()
    silent.close()
