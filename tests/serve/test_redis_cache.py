"""Answers shared through a real Redis: whatever becomes of it, no error, no wrong answer, no missed deadline."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.device.commands import serve
from edgekit.serve.redis_cache import address, decode, encode
from tests.conftest import ROOT
from tests.serve.cached import Redis, Server, image, slow, tiny

pytestmark = [pytest.mark.processes, pytest.mark.needs(package="redis")]

KEY = "edgekit:1:abc:onnxruntime-1.0:0.1:|u1:1x4:00"
OUTPUTS = np.array([[1.5, -2.0, 3e-9]], dtype=np.float32)
VALUE = encode(KEY, OUTPUTS)
IMAGES = [image(number) for number in range(60)]


def test_a_value_comes_back_to_the_bit() -> None:
    found = decode(KEY, OUTPUTS.shape, VALUE)
    assert found is not None
    assert (found.tobytes(), found.shape, found.dtype) == (OUTPUTS.tobytes(), OUTPUTS.shape, np.dtype("<f4"))


@pytest.mark.parametrize("place", range(len(VALUE)))
def test_a_value_with_any_damaged_byte_is_no_answer(place: int) -> None:
    damaged = bytearray(VALUE)
    damaged[place] ^= 0x10
    found = decode(KEY, OUTPUTS.shape, bytes(damaged))
    assert found is None or found.tobytes() == OUTPUTS.tobytes()


@pytest.mark.parametrize("value", [b"", b"\n", VALUE[:-1], VALUE + b"\0", VALUE[1:], VALUE * 2, VALUE[:40]])
def test_a_value_cut_or_lengthened_is_no_answer(value: bytes) -> None:
    assert decode(KEY, OUTPUTS.shape, value) is None


def test_a_value_of_another_question_is_no_answer() -> None:
    assert decode(KEY + "1", OUTPUTS.shape, VALUE) is None
    assert decode(KEY, (3, 1), VALUE) is None
    assert decode(KEY, (1, 4), VALUE) is None


@given(st.binary(max_size=400))
def test_foreign_bytes_are_no_answer(value: bytes) -> None:
    assert decode(KEY, OUTPUTS.shape, value) is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:hush@store:7000/3", "store:7000"),
        ("redis://:hush@127.0.0.1", "127.0.0.1:6379"),
        ("redis://[::1]:6380", "[::1]:6380"),
        ("unix://:hush@/run/redis.sock", "/run/redis.sock"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    assert address(url) == shown


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("bundles")
    return [tiny(folder), slow(folder)]


@pytest.fixture(scope="module")
def expected(paths: list[Path], tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """What a server without a cache answers to `IMAGES`."""
    server = Server.start(tmp_path_factory.mktemp("plain"), paths[1])
    try:
        return server.all("slow", IMAGES)
    finally:
        server.stop()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    started = Redis.start(tmp_path)
    yield started
    started.stop()


@contextmanager
def serving(folder: Path, paths: list[Path], url: str, *options: object) -> Iterator[Server]:
    """A server whose own memory holds few answers for a moment, so that it asks Redis.

    A URL with a password stands in a file.
    """
    where: str | Path = url
    if "@" in url:
        where = folder / "redis-url"
        where.write_text(url)
        where.chmod(0o600)
    server = Server.start(folder, "--cache-mb", 1, "--cache-redis", where, *options, *paths)
    try:
        yield server
    finally:
        server.stop()


def is_used(server: Server) -> bool:
    return "is used: asking takes" in server.cache_state("slow")


def wait_used(server: Server) -> None:
    """Redis is in use, or is again after a moment in which it was late."""
    wait(lambda: bool(server.infer("slow", image(int(time.monotonic() * 1e3)))) and is_used(server), "it is not used")


def wait(condition: Callable[[], bool], what: str) -> None:
    """Until it holds; fails after a minute."""
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.05)


def stored(redis: Redis) -> int:
    return len([key for key in redis.client().keys("edgekit:1:*") if b"measured" not in key])


@contextmanager
def asking(server: Server, expected: list[bytes]) -> Iterator[list[int]]:
    """Eight clients that ask without a pause, each answer compared; gives how many rounds they made."""
    ending, rounds = threading.Event(), [0]

    def ask(first: int) -> None:
        number = first
        while not ending.is_set():
            number = (number + 7) % len(IMAGES)
            assert server.infer("slow", IMAGES[number]) == expected[number]
            rounds[0] += 1

    with ThreadPoolExecutor(8) as pool:
        clients = [pool.submit(ask, first) for first in range(8)]
        try:
            yield rounds
        finally:
            ending.set()
        for client in clients:
            client.result()


def more(rounds: list[int], count: int) -> None:
    """Until the clients have had so many further answers."""
    seen = rounds[0]
    wait(lambda: rounds[0] >= seen + count, "the clients get no answers")


SHORT = ("--cache-ttl-s", 0.05)


def test_a_server_has_what_another_has_computed(
    tmp_path: Path, paths: list[Path], redis: Redis, expected: list[bytes]
) -> None:
    with serving(tmp_path, paths, redis.url()) as first:
        assert first.all("slow", IMAGES, at_once=2) == expected
        wait(lambda: stored(redis) > 0, "nothing was stored")
    with serving(tmp_path, paths, redis.url()) as second:
        assert second.all("slow", IMAGES, at_once=2) == expected
        counts = second.counts("slow")
        assert counts["execution"] == counts["cache_miss"]
        assert counts["execution"] + counts["cache_hit"] == len(IMAGES)
        assert counts["cache_hit"] > 0  # on a busy machine some answers miss Redis' 20 ms, on the way in or out


def test_redis_is_used_where_executing_takes_longer_and_the_log_says_both(
    tmp_path: Path, paths: list[Path], redis: Redis
) -> None:
    with serving(tmp_path, paths, redis.url()) as server:
        where = f"Redis at 127.0.0.1:{redis.port}"
        fast = server.wait_for_log(rf"tiny: .*{where} is not used: asking takes (\S+) ms, executing (\S+) ms")
        long = server.wait_for_log(rf"slow: .*{where} is used: asking takes (\S+) ms, executing (\S+) ms")
        assert float(fast[1]) >= float(fast[2])
        assert float(long[1]) < float(long[2])
        server.all("tiny", IMAGES[:5])
        assert stored(redis) == 0
        server.infer("slow", IMAGES[0])
        wait(lambda: stored(redis) == 1, "nothing was stored")


def test_what_lies_in_redis_ends_with_its_time(tmp_path: Path, paths: list[Path], redis: Redis) -> None:
    with serving(tmp_path, paths, redis.url(), "--cache-ttl-s", 0.5) as server:
        server.infer("slow", IMAGES[0])
        time.sleep(1)
        server.infer("slow", IMAGES[0])
        assert server.counts("slow")["execution"] == 2


def test_a_redis_that_is_killed_and_comes_back_under_load(
    tmp_path: Path, paths: list[Path], redis: Redis, expected: list[bytes]
) -> None:
    with serving(tmp_path, paths, redis.url(), *SHORT) as server, asking(server, expected) as rounds:
        more(rounds, 100)
        redis.stop()
        more(rounds, 200)
        server.wait_for_log(r"does not answer(: \w+| in time); the model runs instead")
        again = Redis.start(tmp_path, port=redis.port)
        try:
            server.wait_for_log("answers again")
            wait(lambda: stored(again) > 0, "nothing is stored again")
            more(rounds, 50)
        finally:
            again.stop()


def test_a_redis_that_hangs_under_load(tmp_path: Path, paths: list[Path], redis: Redis, expected: list[bytes]) -> None:
    with serving(tmp_path, paths, redis.url(), *SHORT) as server, asking(server, expected) as rounds:
        more(rounds, 100)
        redis.process.send_signal(signal.SIGSTOP)
        more(rounds, 200)
        server.wait_for_log(r"does not answer(: \w+| in time); the model runs instead")
        redis.process.send_signal(signal.SIGCONT)
        server.wait_for_log("answers again")
        more(rounds, 100)


def test_a_redis_that_hangs_at_the_start(
    tmp_path: Path, paths: list[Path], redis: Redis, expected: list[bytes]
) -> None:
    redis.process.send_signal(signal.SIGSTOP)
    with serving(tmp_path, paths, redis.url(), *SHORT) as server:
        server.wait_for_log("slow: .* does not answer, and will be tried again")
        assert server.all("slow", IMAGES) == expected


def test_a_redis_that_comes_after_the_server_is_measured_then(
    tmp_path: Path, paths: list[Path], redis: Redis, expected: list[bytes]
) -> None:
    redis.stop()
    with serving(tmp_path, paths, redis.url(), *SHORT) as server:
        server.wait_for_log("slow: .* does not answer, and will be tried again")
        assert server.all("slow", IMAGES) == expected
        again = Redis.start(tmp_path, port=redis.port)
        try:
            with asking(server, expected):
                wait(lambda: is_used(server), "the Redis that came later is not used")
        finally:
            again.stop()


def test_a_redis_that_is_full(tmp_path: Path, paths: list[Path], expected: list[bytes]) -> None:
    redis = Redis.start(tmp_path, "--maxmemory", "1", "--maxmemory-policy", "noeviction")
    try:
        with serving(tmp_path, paths, redis.url(), *SHORT) as server:
            for _ in range(2):
                assert server.all("slow", IMAGES) == expected
            wait_used(server)
        assert stored(redis) == 0
    finally:
        redis.stop()


FOREIGN: dict[str, Callable[[object, bytes], object]] = {
    "text": lambda client, key: client.set(key, b"not ours"),  # type: ignore[attr-defined]
    "empty": lambda client, key: client.set(key, b""),  # type: ignore[attr-defined]
    "long": lambda client, key: client.set(key, bytes(1 << 24)),  # type: ignore[attr-defined]
    "list": lambda client, key: (client.delete(key), client.rpush(key, b"a")),  # type: ignore[attr-defined]
    "hash": lambda client, key: (client.delete(key), client.hset(key, "a", "b")),  # type: ignore[attr-defined]
    "cut": lambda client, key: client.set(key, client.get(key)[:-3]),  # type: ignore[attr-defined]
    "changed": lambda client, key: client.setrange(key, client.strlen(key) - 2, b"\x55"),  # type: ignore[attr-defined]
}


def is_valid(client: Any, key: bytes) -> bool:
    """Whether an answer lies there."""
    return client.type(key) == b"string" and decode(key.decode(), (1, 3), client.get(key)) is not None


def test_foreign_bytes_under_our_keys_are_no_answers_and_are_replaced(
    tmp_path: Path, paths: list[Path], redis: Redis, expected: list[bytes]
) -> None:
    count, client = len(FOREIGN), redis.client()
    with serving(tmp_path, paths, redis.url()) as server:
        assert server.all("slow", IMAGES, at_once=1) == expected
        wait(lambda: stored(redis) >= count, "not enough was stored")
    keys = sorted(key for key in client.keys("edgekit:1:*") if b"measured" not in key)
    for place, key in enumerate(keys):
        list(FOREIGN.values())[place % count](client, key)
    with serving(tmp_path, paths, redis.url()) as server:
        assert server.all("slow", IMAGES, at_once=1) == expected
        assert server.counts("slow")["execution"] == len(IMAGES)
        wait(lambda: sum(is_valid(client, key) for key in keys) > len(keys) / 2, "foreign values are not replaced")


@pytest.mark.parametrize(
    "response", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\xff\r\n" * 50, b"$999999999\r\nab", b":1\r\n" * 9, b""]
)
def test_something_else_listens_where_redis_should(
    response: bytes, tmp_path: Path, paths: list[Path], expected: list[bytes]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                    connection.sendall(response)
                    connection.close()
                except OSError:
                    if listening.fileno() < 0:
                        return

        threading.Thread(target=answer, daemon=True).start()
        with serving(tmp_path, paths, f"redis://127.0.0.1:{listening.getsockname()[1]}", *SHORT) as server:
            assert server.all("slow", IMAGES[:20]) == expected[:20]
            assert not is_used(server)
        listening.shutdown(socket.SHUT_RDWR)


def test_answers_under_each_others_keys_are_no_answers(
    tmp_path: Path, paths: list[Path], redis: Redis, expected: list[bytes]
) -> None:
    few, client = IMAGES[:6], redis.client()
    with serving(tmp_path, paths, redis.url()) as server:
        server.all("slow", few, at_once=1)
        wait(lambda: stored(redis) > 1, "nothing was stored")
    keys = sorted(key for key in client.keys("edgekit:1:*") if b"measured" not in key)
    values = [client.get(key) for key in keys]
    for key, value in zip(keys, values[1:] + values[:1], strict=True):
        client.set(key, value)
    with serving(tmp_path, paths, redis.url()) as server:
        assert server.all("slow", few, at_once=1) == expected[:6]
        assert server.counts("slow")["execution"] == 6


@pytest.mark.parametrize("password", ["", "wrong"])
def test_a_redis_that_wants_another_password(
    password: str, tmp_path: Path, paths: list[Path], expected: list[bytes]
) -> None:
    redis = Redis.start(tmp_path, "--requirepass", "right")
    try:
        with serving(tmp_path, paths, redis.url(password), *SHORT) as server:
            assert server.all("slow", IMAGES) == expected
            assert not is_used(server)
            assert "wrong" not in server.log_text()
    finally:
        redis.stop()


def test_a_redis_with_a_password_is_used_and_the_password_stays_secret(
    tmp_path: Path, paths: list[Path], expected: list[bytes]
) -> None:
    redis = Redis.start(tmp_path, "--requirepass", "hush")
    try:
        with serving(tmp_path, paths, redis.url("hush")) as server:
            assert server.all("slow", IMAGES) == expected
            wait_used(server)
            assert "hush" not in server.log_text() + server.get("/status")
    finally:
        redis.stop()


def test_without_the_client_package_the_command_says_what_to_install(tmp_path: Path) -> None:
    script = (
        "import sys, importlib.util as util; real = util.find_spec; "
        "util.find_spec = lambda name, *rest: None if name == 'redis' else real(name, *rest); "
        "from edgekit.runner.cli import main; sys.exit(main())"
    )
    command = [sys.executable, "-c", script, "serve", str(tmp_path), "--cache-mb", "1", "--cache-redis", "redis://x"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ})
    assert "redis" not in serve.PACKAGES
    assert ended.returncode != 0
    assert "serve needs redis; run:" in ended.stderr
    assert "pip install redis" in ended.stderr
