"""Answers shared by servers through a Redis, where asking it costs less than running the model.

Redis may be down, slow, full, or hold other people's bytes: then an answer is executed as if there were none. A value
says what it is: format, key, shape, and the sha256 of its bytes; whatever else lies there is not an answer. That guards
against accidents, not against somebody who may write to that Redis on purpose.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from time import monotonic, perf_counter
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from edgekit.serve.log import log

TIMEOUT_S = 0.02
"""Of a command that a request waits for, connecting included. A Redis near by answers in a fiftieth of it."""
UNHURRIED_S = 0.1
"""Of a command that nobody waits for."""
MOST_LATE = 3
"""Commands in a row without an answer, after which nothing is asked for a while; a refused connection is enough."""
LEAST_SLACK_S = 0.002
"""A request that has less to spare before its deadline does not ask."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 5.0
"""For which nothing is asked after a failure: doubled each time; then one command tries."""
MOST_AT_ONCE = 16
MEASURED_ROUNDS = 15
MAGIC = "edgekit answer 1"
DTYPE = np.dtype("<f4")


class Found(NamedTuple):
    """Outputs from Redis, and the seconds that they are still good for; None where no end is set."""

    outputs: np.ndarray
    left_s: float | None


def encode(key: str, outputs: np.ndarray) -> bytes:
    """A value that says what it is."""
    payload = np.ascontiguousarray(outputs, DTYPE).tobytes()
    return _head(key, outputs.shape) + hashlib.sha256(payload).hexdigest().encode() + b"\n" + payload


def decode(key: str, shape: tuple[int, ...], value: bytes) -> np.ndarray | None:
    """What `encode` was given; None of any other bytes."""
    head = _head(key, shape)
    digest, payload = value[len(head) : len(head) + 64], value[len(head) + 65 :]
    if not value.startswith(head) or len(payload) != DTYPE.itemsize * int(np.prod(shape)):
        return None
    if hashlib.sha256(payload).hexdigest().encode() != digest:
        return None
    return np.frombuffer(payload, DTYPE).reshape(shape)


def _head(key: str, shape: tuple[int, ...]) -> bytes:
    return f"{MAGIC}\n{key}\n{DTYPE.str} {'x'.join(map(str, shape))}\n".encode()


class Breaker:
    """Whether to ask at all: not for a while after a failure, longer each time; then one tries for all."""

    def __init__(self) -> None:
        self._pause_s = 0.0
        self._until_s = 0.0
        self._trying = False
        self._late = 0

    @property
    def is_open(self) -> bool:
        """Whether nothing is asked."""
        return self._pause_s > 0

    def may_ask(self) -> bool:
        """Whether this command may go; where it is a trial, it has to say how it ended."""
        if not self._pause_s:
            return True
        if self._trying or monotonic() < self._until_s:
            return False
        self._trying = True
        return True

    def succeeded(self) -> bool:
        """Ask again; whether that is news."""
        was_open, self._trying, self._pause_s, self._late = self.is_open, False, 0.0, 0
        return was_open

    def was_late(self) -> bool:
        """One command had no answer in time; whether nothing is asked from now on, and that is news."""
        self._late += 1
        return self.failed() if self.is_open or self._late >= MOST_LATE else False

    def failed(self) -> bool:
        """Stop asking; whether that is news."""
        was_open, self._trying = self.is_open, False
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S) or FIRST_PAUSE_S
        self._until_s = monotonic() + self._pause_s
        return not was_open

    def gave_up(self) -> None:
        """The command was cancelled before it told anything."""
        self._trying = False


class RedisCache:
    """A worker's way to Redis. Nothing that Redis does raises here; `says` is whether it logs."""

    def __init__(self, url: str, says: bool) -> None:
        from redis.asyncio import Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff
        from redis.exceptions import OutOfMemoryError, ResponseError
        from redis.exceptions import TimeoutError as RedisTimeoutError

        self._late = (RedisTimeoutError, asyncio.TimeoutError)
        self._refused, self._full = ResponseError, OutOfMemoryError
        self.name, self._says = address(url), says
        self._client: Any = Redis.from_url(
            url, socket_timeout=UNHURRIED_S, socket_connect_timeout=UNHURRIED_S, retry=Retry(NoBackoff(), 0),
            protocol=2, max_connections=2 * MOST_AT_ONCE, decode_responses=False, encoding="utf-8",
        )  # fmt: skip
        self._breaker = Breaker()
        self._asking = 0
        self._cost_ms: dict[int, float] = {}
        self._measuring = False
        self._tasks: set[asyncio.Task[Any]] = set()

    def verdict(self, output_bytes: int, execute_ms: float) -> str:
        """Whether a model's answers go to Redis, with both measurements."""
        cost_ms = self._cost_ms.get(output_bytes)
        if cost_ms is None:
            return f"Redis at {self.name} does not answer, and is tried again"
        costs = f"asking takes {cost_ms:.3g} ms, executing {execute_ms:.3g} ms"
        if execute_ms <= cost_ms:
            return f"Redis at {self.name} is not used: {costs}"
        if self._breaker.is_open:
            return f"Redis at {self.name} does not answer, and is tried again; {costs}"
        return f"Redis at {self.name} is used: {costs}"

    def pays(self, output_bytes: int, execute_ms: float) -> bool:
        """Whether to ask for such an answer. Where the cost is not known yet, it is measured beside the request."""
        cost_ms = self._cost_ms.get(output_bytes)
        if cost_ms is None:
            if not self._measuring and self._breaker.may_ask():
                self._measuring = True
                self._start(self._measured_beside(output_bytes))
            return False
        return execute_ms > cost_ms

    async def _measured_beside(self, output_bytes: int) -> None:
        try:
            await self.measure(output_bytes)
        finally:
            self._measuring = False

    async def measure(self, output_bytes: int) -> None:
        """The medians of asking for one answer and of storing it, in turns; none where Redis fails."""
        if output_bytes in self._cost_ms:
            return
        key, value = f"edgekit:1:measured:{os.getpid()}", bytes(output_bytes + 512)
        asked, stored = [], []
        for _ in range(MEASURED_ROUNDS):
            started = perf_counter()
            if await self._ask(self._get(key, len(value))) is None:
                return
            between = perf_counter()
            await self._ask(self._set(key, value, 1000))
            asked.append(between - started)
            stored.append(perf_counter() - between)
        middle = MEASURED_ROUNDS // 2
        self._cost_ms[output_bytes] = 1e3 * (sorted(asked)[middle] + sorted(stored)[middle])

    async def get(self, key: str, shape: tuple[int, ...], slack_s: float) -> Found | None:
        """An answer; None where there is none, or Redis cannot say in time."""
        if slack_s < LEAST_SLACK_S or self._asking >= MOST_AT_ONCE or not self._breaker.may_ask():
            return None
        most = len(encode(key, np.empty(0, DTYPE))) + 16 * len(shape) + DTYPE.itemsize * int(np.prod(shape))
        found = await self._ask(self._get(key, most), min(slack_s, TIMEOUT_S))
        if not found:
            return None
        value, left_ms = found
        outputs = decode(key, shape, value)
        return None if outputs is None else Found(outputs, left_ms / 1e3 if left_ms >= 0 else None)

    def put_soon(self, key: str, outputs: np.ndarray, ttl_s: float) -> None:
        """Store an answer, beside the requests; or not, where too many are being stored."""
        if len(self._tasks) < MOST_AT_ONCE and self._breaker.may_ask():
            self._start(self._ask(self._set(key, encode(key, outputs), max(1, int(ttl_s * 1e3)))))

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _get(self, key: str, most: int) -> tuple[bytes, int]:
        """At most so many bytes of a value, however long it is, and the milliseconds that it has left."""
        async with self._client.pipeline(transaction=False) as both:
            both.getrange(key, 0, most - 1)
            both.pttl(key)
            value, left_ms = await both.execute()
        return value, left_ms

    async def _set(self, key: str, value: bytes, ttl_ms: int) -> bool:
        await self._client.set(key, value, px=ttl_ms)
        return True

    async def _ask(self, command: Any, timeout_s: float = UNHURRIED_S) -> Any:
        """What a command gives; () where Redis answers but refuses; None where it fails, which is then noted."""
        self._asking += 1
        try:
            async with asyncio.timeout(timeout_s):
                result = await command
        except self._refused as error:
            if isinstance(error, self._full) or "WRONGTYPE" in str(error):
                self._note(self._breaker.succeeded(), "answers again")
                return ()
            self._note(self._breaker.failed(), f"refuses: {type(error).__name__}; answers are executed")
            return None
        except self._late:
            self._note(self._breaker.was_late(), "does not answer in time; answers are executed")
            return None
        except Exception as error:  # whatever the client makes of what it was sent, the request goes on
            self._note(self._breaker.failed(), f"does not answer: {type(error).__name__}; answers are executed")
            return None
        except BaseException:
            self._breaker.gave_up()
            raise
        finally:
            self._asking -= 1
        self._note(self._breaker.succeeded(), "answers again")
        return result

    def _note(self, is_news: bool, text: str) -> None:
        if is_news and self._says:
            log(f"Redis at {self.name} {text}")


def address(url: str) -> str:
    """A Redis' address as it may be shown: without its user and password."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return parts.path
    host = parts.hostname or "localhost"
    return f"{f'[{host}]' if ':' in host else host}:{parts.port or 6379}"
