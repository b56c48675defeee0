"""Answers that several servers share through Redis, used if Redis answers faster than the model.

If Redis is down, slow or full, or holds something else under a key, the model is run as if there were no Redis. Every
value starts with its format, key and shape and the SHA-256 digest of its bytes, and anything else is ignored. This
protects against accidents, not against an attacker who can write to the Redis.
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
"""Timeout of a command that a request waits for, including the time to connect. A nearby Redis takes a fiftieth of
this time."""
BACKGROUND_TIMEOUT_S = 0.1
"""Timeout of a command that no request waits for."""
MAX_TIMEOUTS = 3
"""After this many timeouts in a row, no commands are sent for a while. One refused connection has the same effect."""
MIN_SLACK_S = 0.002
"""A request with less time to spare before its deadline skips Redis."""
FIRST_PAUSE_S, MAX_PAUSE_S = 0.5, 5.0
"""The first and the longest pause in which no commands are sent.

The pause doubles with each failure. After it, a single command finds out whether Redis is back.
"""
MAX_COMMANDS = 16
MEASURED_ROUNDS = 15
MAGIC = "edgekit answer 1"
DTYPE = np.dtype("<f4")


class CachedOutputs(NamedTuple):
    """Outputs from Redis, and for how many seconds they remain valid, or None if there is no limit."""

    outputs: np.ndarray
    remaining_s: float | None


def encode(key: str, outputs: np.ndarray) -> bytes:
    """Return the value to store for outputs: a header with format, key, shape and digest, and the float32 values."""
    values = np.ascontiguousarray(outputs, DTYPE).tobytes()
    return _head(key, outputs.shape) + hashlib.sha256(values).hexdigest().encode() + b"\n" + values


def decode(key: str, shape: tuple[int, ...], value: bytes) -> np.ndarray | None:
    """Return the outputs that `encode` stored, or None if the value is anything else."""
    head = _head(key, shape)
    digest, values = value[len(head) : len(head) + 64], value[len(head) + 65 :]
    if not value.startswith(head) or len(values) != DTYPE.itemsize * int(np.prod(shape)):
        return None
    if hashlib.sha256(values).hexdigest().encode() != digest:
        return None
    return np.frombuffer(values, DTYPE).reshape(shape)


def _head(key: str, shape: tuple[int, ...]) -> bytes:
    return f"{MAGIC}\n{key}\n{DTYPE.str} {'x'.join(map(str, shape))}\n".encode()


class CircuitBreaker:
    """Decides whether commands are sent to Redis at all.

    After a failure no commands are sent for a while, and for longer after each further failure. Then a single command
    finds out whether Redis is back.
    """

    def __init__(self) -> None:
        self._pause_s = 0.0
        self._until_s = 0.0
        self._is_trying = False
        self._timeouts = 0

    @property
    def is_open(self) -> bool:
        """Whether commands are being held back."""
        return self._pause_s > 0

    def allows_command(self) -> bool:
        """Return whether a command may be sent. Its outcome must then be reported with one of the `note_` methods."""
        if not self._pause_s:
            return True
        if self._is_trying or monotonic() < self._until_s:
            return False
        self._is_trying = True
        return True

    def note_success(self) -> bool:
        """Allow commands again. Returns whether they were held back before."""
        was_open, self._is_trying, self._pause_s, self._timeouts = self.is_open, False, 0.0, 0
        return was_open

    def note_timeout(self) -> bool:
        """Count a timeout. Returns whether commands are held back from now on and were not before."""
        self._timeouts += 1
        return self.note_failure() if self.is_open or self._timeouts >= MAX_TIMEOUTS else False

    def note_failure(self) -> bool:
        """Hold back commands for a while. Returns whether they were allowed before."""
        was_open, self._is_trying = self.is_open, False
        self._pause_s = min(2 * self._pause_s, MAX_PAUSE_S) or FIRST_PAUSE_S
        self._until_s = monotonic() + self._pause_s
        return not was_open

    def note_cancelled(self) -> None:
        """Record that a command was cancelled, so that another one may try."""
        self._is_trying = False


class RedisCache:
    """A worker's connection to Redis. Its methods never raise because of Redis.

    Parameters
    ----------
    url
        The URL of the Redis.
    is_logging
        Whether to log outages. Only one of the workers does, so that each outage is logged once.
    """

    def __init__(self, url: str, is_logging: bool) -> None:
        from redis.asyncio import Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff
        from redis.exceptions import OutOfMemoryError, ResponseError
        from redis.exceptions import TimeoutError as RedisTimeoutError

        self._timeout_errors = (RedisTimeoutError, asyncio.TimeoutError)
        self._refused, self._full = ResponseError, OutOfMemoryError
        self.name, self._is_logging = address(url), is_logging
        self._client: Any = Redis.from_url(
            url,
            socket_timeout=BACKGROUND_TIMEOUT_S,
            socket_connect_timeout=BACKGROUND_TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            max_connections=2 * MAX_COMMANDS,
            decode_responses=False,
            encoding="utf-8",
        )
        self._breaker = CircuitBreaker()
        self._commands = 0
        self._cost_ms: dict[int, float] = {}
        self._is_measuring = False
        self._tasks: set[asyncio.Task[Any]] = set()

    def summary(self, output_bytes: int, execute_ms: float) -> str:
        """Say in one sentence whether a model's answers are shared through Redis.

        The sentence has the measured times of Redis and of the model.
        """
        cost_ms = self._cost_ms.get(output_bytes)
        if cost_ms is None:
            return f"Redis at {self.name} does not answer, and will be tried again"
        costs = f"asking takes {cost_ms:.3g} ms, executing {execute_ms:.3g} ms"
        if execute_ms <= cost_ms:
            return f"Redis at {self.name} is not used: {costs}"
        if self._breaker.is_open:
            return f"Redis at {self.name} does not answer, and is tried again; {costs}"
        return f"Redis at {self.name} is used: {costs}"

    def is_worthwhile(self, output_bytes: int, execute_ms: float) -> bool:
        """Return whether Redis is faster than the model for an answer of this size.

        If the cost has not been measured yet, the measurement starts in the background.
        """
        cost_ms = self._cost_ms.get(output_bytes)
        if cost_ms is None:
            if not self._is_measuring and self._breaker.allows_command():
                self._is_measuring = True
                self._start(self._measure_in_background(output_bytes))
            return False
        return execute_ms > cost_ms

    async def _measure_in_background(self, output_bytes: int) -> None:
        try:
            await self.measure(output_bytes)
        finally:
            self._is_measuring = False

    async def measure(self, output_bytes: int) -> None:
        """Measure the cost of an answer of this size: the median time of reading it plus that of storing it.

        If Redis fails, no cost is recorded.
        """
        if output_bytes in self._cost_ms:
            return
        key, value = f"edgekit:1:measured:{os.getpid()}", bytes(output_bytes + 512)
        get_s, set_s = [], []
        for _ in range(MEASURED_ROUNDS):
            started_s = perf_counter()
            if await self._run_command(self._get(key, len(value))) is None:
                return
            got_s = perf_counter()
            await self._run_command(self._set(key, value, 1000))
            get_s.append(got_s - started_s)
            set_s.append(perf_counter() - got_s)
        middle = MEASURED_ROUNDS // 2
        self._cost_ms[output_bytes] = 1e3 * (sorted(get_s)[middle] + sorted(set_s)[middle])

    async def get(self, key: str, shape: tuple[int, ...], slack_s: float) -> CachedOutputs | None:
        """Return the answer stored under a key, or None if there is none or Redis does not reply in time."""
        if slack_s < MIN_SLACK_S or self._commands >= MAX_COMMANDS or not self._breaker.allows_command():
            return None
        max_bytes = len(encode(key, np.empty(0, DTYPE))) + 16 * len(shape) + DTYPE.itemsize * int(np.prod(shape))
        reply = await self._run_command(self._get(key, max_bytes), min(slack_s, TIMEOUT_S))
        if not reply:
            return None
        value, ttl_ms = reply
        outputs = decode(key, shape, value)
        return None if outputs is None else CachedOutputs(outputs, ttl_ms / 1e3 if ttl_ms >= 0 else None)

    def store_in_background(self, key: str, outputs: np.ndarray, ttl_s: float) -> None:
        """Store an answer in the background, unless too many are being stored already."""
        if len(self._tasks) < MAX_COMMANDS and self._breaker.allows_command():
            self._start(self._run_command(self._set(key, encode(key, outputs), max(1, int(ttl_s * 1e3)))))

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _get(self, key: str, max_bytes: int) -> tuple[bytes, int]:
        """Return at most `max_bytes` of a value, and its remaining time to live in ms (negative: no limit)."""
        async with self._client.pipeline(transaction=False) as pipeline:
            pipeline.getrange(key, 0, max_bytes - 1)
            pipeline.pttl(key)
            value, ttl_ms = await pipeline.execute()
        return value, ttl_ms

    async def _set(self, key: str, value: bytes, ttl_ms: int) -> bool:
        await self._client.set(key, value, px=ttl_ms)
        return True

    async def _run_command(self, command: Any, timeout_s: float = BACKGROUND_TIMEOUT_S) -> Any:
        """Run a command, report its outcome to the circuit breaker, and return its result.

        Returns () if Redis is full or the key holds another type, because Redis itself is available then. Returns None
        after any other failure.
        """
        self._commands += 1
        try:
            async with asyncio.timeout(timeout_s):
                result = await command
        except self._refused as error:
            if isinstance(error, self._full) or "WRONGTYPE" in str(error):
                self._note(self._breaker.note_success(), "answers again")
                return ()
            self._note(self._breaker.note_failure(), f"refuses: {type(error).__name__}; the model runs instead")
            return None
        except self._timeout_errors:
            self._note(self._breaker.note_timeout(), "does not answer in time; the model runs instead")
            return None
        except Exception as error:  # whatever the client library raises, the request goes on
            self._note(self._breaker.note_failure(), f"does not answer: {type(error).__name__}; the model runs instead")
            return None
        except BaseException:
            self._breaker.note_cancelled()
            raise
        finally:
            self._commands -= 1
        self._note(self._breaker.note_success(), "answers again")
        return result

    def _note(self, is_news: bool, text: str) -> None:
        if is_news and self._is_logging:
            log(f"Redis at {self.name} {text}")


def address(url: str) -> str:
    """Return the address of a Redis without its user and password, so that it may be logged."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return parts.path
    host = parts.hostname or "localhost"
    return f"{f'[{host}]' if ':' in host else host}:{parts.port or 6379}"
