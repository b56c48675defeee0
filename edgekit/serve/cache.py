"""Answers that are remembered for a while: equal requests run once. Off by default.

A `Store` is a worker's memory, bounded in bytes. A `Cached` stands before one model's queue and takes its place there:
`submit` gives what `Batcher.submit` gives. Behind the store there may be a Redis, see `redis_cache.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic, perf_counter_ns
from typing import NamedTuple

import numpy as np
from cachetools import TLRUCache

from edgekit import __version__
from edgekit.serve import counters
from edgekit.serve.batcher import Answer, Batcher
from edgekit.serve.proven import Proven
from edgekit.serve.redis_cache import Shared
from edgekit.serve.single_flight import Flight, Flights, Ran

ENTRY_BYTES = 1024
"""What an entry takes beside its values: key, array, places in the cache's tables. Measured 640 bytes, rounded up."""
PREFIX = "edgekit:1:"


class Kept(NamedTuple):
    """An answer in the store; `until_s` is of `time.monotonic`."""

    outputs: np.ndarray
    until_s: float


class Store:
    """One process's answers: at most `most_bytes`, none older than `ttl_s`; the one not used for longest goes first."""

    def __init__(self, most_bytes: int, ttl_s: float) -> None:
        self.most_bytes, self.ttl_s = most_bytes, ttl_s
        self._kept: TLRUCache[str, Kept] = TLRUCache(
            most_bytes, ttu=lambda _key, kept, _now: kept.until_s, getsizeof=_bytes
        )

    @property
    def size_bytes(self) -> int:
        """What is held, by the same count as the bound."""
        return int(self._kept.currsize)

    @property
    def entries(self) -> int:
        """Answers that are held."""
        return len(self._kept)

    def get(self, key: str) -> np.ndarray | None:
        """Outputs that may not be written to; None where there are none, or no longer."""
        kept = self._kept.get(key)
        return None if kept is None else kept.outputs

    def put(self, key: str, outputs: np.ndarray, left_s: float | None = None) -> np.ndarray:
        """Keep a copy for `left_s`, at most `ttl_s`; the copy, which is kept only where it fits."""
        copy = np.array(outputs, order="C")
        copy.setflags(write=False)
        ttl_s = self.ttl_s if left_s is None else min(left_s, self.ttl_s)
        kept = Kept(copy, monotonic() + ttl_s)
        if _bytes(kept) <= self.most_bytes:
            self._kept[key] = kept
        return copy


@dataclass(frozen=True)
class Remembered:
    """The cache of one worker: its store, and the Redis behind it, None where there is none."""

    store: Store
    shared: Shared | None

    def state(self, redis_state: str) -> str:
        """One sentence for the log and the page."""
        redis = f"; {redis_state}" if redis_state else ""
        return f"answers are cached for {self.store.ttl_s:g} s, {self.store.most_bytes >> 20} MB a worker{redis}"


def base_key(proven: Proven) -> str:
    """What all keys of a model begin with. Its threads do not matter, the code that prepares its samples does."""
    return f"{PREFIX}{proven.identity}:{proven.interpreter}-{proven.interpreter_version}:{__version__}"


def key_of(base: str, samples: np.ndarray) -> str:
    """The key of a request: type, shape and every byte of its samples."""
    shape = "x".join(map(str, samples.shape))
    digest = hashlib.sha256(np.ascontiguousarray(samples).data).hexdigest()
    return f"{base}:{samples.dtype.str}:{shape}:{digest}"


class Cached:
    """One model's answers. All methods belong to the event loop's thread; `row` are the model's counters."""

    def __init__(
        self,
        remembered: Remembered,
        proven: Proven,
        prepare: Callable[[np.ndarray], np.ndarray],
        batcher: Batcher,
        output_shape: tuple[int, ...],
        row: memoryview,
    ) -> None:
        self._remembered, self._store = remembered, remembered.store
        self._base, self._execute_ms = base_key(proven), proven.ms[1]
        self._prepare, self._batcher, self._output_shape, self._row = prepare, batcher, output_shape, row
        self._flights = Flights(self._begin, self._landed)

    async def open(self) -> None:
        """Measure Redis, where there is one, with an answer of this model's size."""
        if self._remembered.shared is not None:
            await self._remembered.shared.measure(self._output_bytes)

    @property
    def state(self) -> str:
        """What is cached where, and why not in Redis."""
        shared = self._remembered.shared
        return self._remembered.state(shared.verdict(self._output_bytes, self._execute_ms) if shared else "")

    @property
    def _output_bytes(self) -> int:
        return 4 * int(np.prod(self._output_shape))

    def submit(self, samples: np.ndarray, deadline_s: float) -> Ran:
        """As `Batcher.submit`, of raw samples (n, *raw); an answer that no call was made for has the batch 0."""
        started_ns = perf_counter_ns()
        key = key_of(self._base, samples)
        outputs = self._store.get(key)
        if outputs is not None:
            counters.timed(self._row, "cache_hit", perf_counter_ns() - started_ns)
            return Answer(outputs, 0, 0, 0)
        return self._flights.submit(key, samples, deadline_s)

    def _begin(self, flight: Flight) -> Ran:
        """What runs for a request that nothing is remembered of; RequestError where it is refused at the door."""
        shared = self._remembered.shared
        if shared is None or not shared.pays(self._output_bytes, self._execute_ms):
            return self._execute(flight)
        return flight.task(self._asked(flight, shared))

    def _execute(self, flight: Flight) -> Ran:
        flight.looked_up()
        return self._batcher.submit(self._prepare(flight.samples), flight.deadline_s)

    async def _asked(self, flight: Flight, shared: Shared) -> Answer:
        """From Redis, else executed."""
        shape = (len(flight.samples), *self._output_shape)
        needed_s = self._batcher.wait_s() + len(flight.samples) * self._execute_ms / 1e3
        found = await shared.get(flight.key, shape, flight.deadline_s - monotonic() - needed_s)
        if found is not None:
            return Answer(self._store.put(flight.key, found.outputs, found.left_s), 0, 0, 0)
        made = self._execute(flight)
        return made if isinstance(made, Answer) else await made

    def _landed(self, flight: Flight, answer: Answer, waiting: int) -> np.ndarray:
        """Count and keep; the outputs for those who did not run. The first of those who wait is the one who ran."""
        began_ns = perf_counter_ns()
        outputs = answer.outputs
        ran = answer.batch > 0
        if ran and np.isfinite(outputs).all():  # what is not is a fault, and no fault is remembered
            outputs = self._store.put(flight.key, outputs)
            if self._remembered.shared is not None and flight.asked:
                self._remembered.shared.put_soon(flight.key, outputs, self._store.ttl_s)
        ended_ns = perf_counter_ns()
        if ran:
            counters.timed(self._row, "cache_miss", flight.lookup_ns + ended_ns - began_ns)
        hits = waiting - ran
        if hits > 0:
            counters.timed(self._row, "cache_hit", flight.waited_ns(ended_ns, skip=int(ran)), hits)
        return outputs


def _bytes(kept: Kept) -> int:
    return kept.outputs.nbytes + ENTRY_BYTES
