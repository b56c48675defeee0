"""Answers that are remembered: for a while, within a bound, under keys that never meet, and run once for all."""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgekit.serve.batcher import Answer, Batcher
from edgekit.serve.cache import ENTRY_BYTES, AnswerCache, AnswerStore, Flights, WorkerCache, answer_key, key_prefix
from edgekit.serve.counters import FIELDS, SharedCounters
from edgekit.serve.errors import RequestError
from edgekit.serve.repository import ValidatedBundle
from tests.conftest import run_edgekit
from tests.serve.cached import Server, image, slow, tiny

PROVEN = ValidatedBundle("a.edge.zip", "a" * 64, "a", "1", "onnx", "onnxruntime", "1.0", 1, {1: 0.01}, {})
PIECE = np.arange(4, dtype=np.float32)
NEVER_S = math.inf


def test_an_answer_is_forgotten_after_its_time() -> None:
    store = AnswerStore(1 << 20, 1.0)
    store.put("key", PIECE)
    assert store.get("key") is not None
    time.sleep(1.1)
    assert store.get("key") is None


def test_an_answer_that_was_old_already_is_forgotten_earlier() -> None:
    store = AnswerStore(1 << 20, 3600.0)
    store.put("key", PIECE, remaining_s=0.05)
    time.sleep(0.1)
    assert store.get("key") is None


def test_no_answer_is_kept_for_longer_than_the_store_allows() -> None:
    store = AnswerStore(1 << 20, 0.05)
    store.put("key", PIECE, remaining_s=3600.0)
    time.sleep(0.1)
    assert store.get("key") is None


def test_the_bound_in_bytes_holds() -> None:
    store = AnswerStore(1 << 20, 3600.0)
    for number in range(100):
        store.put(str(number), np.full(1 << 14, number, dtype=np.float32))
        assert 0 < store.size_bytes <= 1 << 20
    kept = [number for number in range(100) if store.get(str(number)) is not None]
    assert kept == list(range(100 - len(kept), 100))
    assert len(kept) == (1 << 20) // ((1 << 16) + ENTRY_BYTES)


def test_an_answer_larger_than_the_bound_is_given_and_not_kept() -> None:
    store = AnswerStore(1 << 12, 3600.0)
    store.put("small", PIECE)
    assert store.put("large", np.ones(1 << 12, dtype=np.float32)).sum() == 1 << 12
    assert store.get("large") is None
    assert store.get("small") is not None


def test_what_was_not_used_for_longest_goes_first() -> None:
    store = AnswerStore(3 * (PIECE.nbytes + ENTRY_BYTES), 3600.0)
    for key in "abc":
        store.put(key, PIECE)
    store.get("a")
    store.put("d", PIECE)
    assert [key for key in "abcd" if store.get(key) is not None] == ["a", "c", "d"]


def test_what_is_kept_cannot_be_changed_from_outside() -> None:
    given, store = PIECE.copy(), AnswerStore(1 << 20, 3600.0)
    store.put("key", given)
    given[:] = -1
    kept = store.get("key")
    assert kept is not None
    assert kept.tolist() == PIECE.tolist()
    with pytest.raises(ValueError, match="read-only"):
        kept[0] = 1


ONE = np.zeros((1, 4, 2), dtype=np.uint8)


@pytest.mark.parametrize(
    ("proven", "samples"),
    [
        (replace(PROVEN, identity="b" * 64), ONE),
        (replace(PROVEN, interpreter="openvino"), ONE),
        (replace(PROVEN, interpreter_version="1.1"), ONE),
        (PROVEN, ONE.view(np.int8)),
        (PROVEN, ONE.reshape(1, 2, 4)),
        (PROVEN, ONE.reshape(2, 2, 2)),
        (PROVEN, ONE + np.eye(4, 2, dtype=np.uint8)),
    ],
    ids=["bundle", "interpreter", "version", "dtype", "shape", "samples", "bytes"],
)
def test_another_question_has_another_key(proven: ValidatedBundle, samples: np.ndarray) -> None:
    assert answer_key(key_prefix(proven), samples) != answer_key(key_prefix(PROVEN), ONE)


def test_the_same_question_has_the_same_key() -> None:
    assert answer_key(key_prefix(replace(PROVEN, threads=4, path="elsewhere")), ONE.copy()) == answer_key(
        key_prefix(PROVEN), ONE
    )
    turned = np.ascontiguousarray(ONE.swapaxes(1, 2)).swapaxes(1, 2)
    assert answer_key(key_prefix(PROVEN), turned) == answer_key(key_prefix(PROVEN), ONE)


class Gated:
    """A model that runs on its own thread, when it is let; `fails` calls raise, `ran` are the values of its calls."""

    def __init__(self, fails: int = 0) -> None:
        self.fails, self.ran = fails, list[float]()
        self.gate = threading.Event()
        self.row = SharedCounters(1).row(0, 0)

    def execute(self, x: np.ndarray) -> np.ndarray:
        self.ran.append(float(x[0, 0]))
        assert self.gate.wait(60)
        if self.fails:
            self.fails -= 1
            raise ValueError("the interpreter fails")
        return 2 * x

    def count(self, kind: str) -> int:
        return int(self.row[FIELDS[f"{kind}_count"]])


Scene = Callable[[AnswerCache], object]


def played(model: Gated, scene: Callable[[AnswerCache], object], limit: int = 64) -> None:
    """Run a coroutine function with the model's cache."""

    async def run() -> None:
        with ThreadPoolExecutor(1) as pool:
            batcher = Batcher(model.execute, PROVEN.curve, limit, pool)
            remembered = WorkerCache(AnswerStore(1 << 20, 3600.0), None)
            cached = AnswerCache(remembered, PROVEN, lambda raw: raw, batcher, (1,), model.row)
            try:
                await asyncio.wait_for(scene(cached), 60)  # type: ignore[arg-type]
            finally:
                model.gate.set()

    asyncio.run(run())


def sample(value: float) -> np.ndarray:
    return np.array([[value]], dtype=np.float32)


def submit(cached: AnswerCache, value: float, deadline_s: float = NEVER_S) -> asyncio.Future[Answer]:
    future = cached.submit(sample(value), deadline_s)
    assert not isinstance(future, Answer)
    return future


def test_equal_requests_that_come_together_run_once() -> None:
    model = Gated()

    async def scene(cached: AnswerCache) -> None:
        futures = [submit(cached, 3) for _ in range(8)]
        other = submit(cached, 4)
        model.gate.set()
        assert [(await each).outputs.tolist() for each in futures] == [[[6.0]]] * 8
        assert (await other).outputs.tolist() == [[8.0]]
        remembered = cached.submit(sample(3), NEVER_S)
        assert isinstance(remembered, Answer)
        assert (remembered.outputs.tolist(), remembered.batch) == ([[6.0]], 0)

    played(model, scene)
    assert model.ran == [3.0, 4.0]
    assert (model.count("cache_miss"), model.count("cache_hit")) == (2, 8)


def test_the_others_get_their_answer_where_the_first_hangs_up() -> None:
    model = Gated()

    async def scene(cached: AnswerCache) -> None:
        first, *others = [submit(cached, 3) for _ in range(4)]
        await asyncio.sleep(0.05)
        first.cancel()
        await asyncio.sleep(0.05)
        late = submit(cached, 3)
        model.gate.set()
        assert [(await each).outputs.tolist() for each in (*others, late)] == [[[6.0]]] * 4

    played(model, scene)
    assert model.ran == [3.0]
    assert (model.count("cache_miss"), model.count("cache_hit")) == (1, 3)


def test_what_nobody_waits_for_any_more_does_not_run_and_comes_back_whole() -> None:
    model = Gated()

    async def scene(cached: AnswerCache) -> None:
        running = submit(cached, 1)
        await asyncio.sleep(0.05)
        for future in [submit(cached, 3) for _ in range(4)]:
            future.cancel()
        await asyncio.sleep(0.05)
        model.gate.set()
        await running
        await asyncio.sleep(0.05)
        assert model.ran == [1.0]
        assert (await submit(cached, 3)).outputs.tolist() == [[6.0]]

    played(model, scene)
    assert model.ran == [1.0, 3.0]


def test_the_firsts_deadline_is_its_own() -> None:
    model = Gated()

    async def scene(cached: AnswerCache) -> None:
        running = submit(cached, 1)
        first = submit(cached, 3, time.monotonic() + 0.2)
        others = [submit(cached, 3) for _ in range(3)]
        await asyncio.sleep(0.4)
        model.gate.set()
        await running
        with pytest.raises(RequestError, match="deadline passed"):
            await first
        assert [(await each).outputs.tolist() for each in others] == [[[6.0]]] * 3

    played(model, scene)
    assert model.ran == [1.0, 3.0]


def test_who_joins_is_refused_at_its_own_deadline() -> None:
    model = Gated()

    async def scene(cached: AnswerCache) -> None:
        first, hurried = submit(cached, 3), submit(cached, 3, time.monotonic() + 0.1)
        with pytest.raises(RequestError, match="deadline passed") as refused:
            await hurried
        assert refused.value.status == 503
        model.gate.set()
        assert (await first).outputs.tolist() == [[6.0]]

    played(model, scene)
    assert model.ran == [3.0]


def test_the_others_run_once_more_where_the_model_failed_the_first() -> None:
    model = Gated(fails=1)

    async def scene(cached: AnswerCache) -> None:
        first, *others = [submit(cached, 3) for _ in range(4)]
        model.gate.set()
        with pytest.raises(ValueError, match="the interpreter fails"):
            await first
        assert [(await each).outputs.tolist() for each in others] == [[[6.0]]] * 3

    played(model, scene)
    assert model.ran == [3.0, 3.0]


def test_a_model_that_fails_again_fails_all_and_is_asked_anew_later() -> None:
    model = Gated(fails=2)

    async def scene(cached: AnswerCache) -> None:
        futures = [submit(cached, 3) for _ in range(5)]
        model.gate.set()
        for future in futures:
            with pytest.raises(ValueError, match="the interpreter fails"):
                await future
        assert model.ran == [3.0, 3.0]
        assert (await submit(cached, 3)).outputs.tolist() == [[6.0]]

    played(model, scene)


def test_a_refusal_at_the_door_leaves_nothing_behind() -> None:
    model = Gated()

    async def scene(cached: AnswerCache) -> None:
        waiting = [submit(cached, 1), submit(cached, 2)]
        await asyncio.sleep(0.05)
        waiting.append(submit(cached, 5))
        with pytest.raises(RequestError, match="the queue is full"):
            cached.submit(sample(3), NEVER_S)
        model.gate.set()
        for each in waiting:
            await each
        assert (await submit(cached, 3)).outputs.tolist() == [[6.0]]

    played(model, scene, limit=2)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_is_not_remembered(value: float) -> None:
    model = Gated()
    model.gate.set()

    async def scene(cached: AnswerCache) -> None:
        for _ in range(2):
            await submit(cached, value)

    played(model, scene)
    assert len(model.ran) == 2


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("served")
    server = Server.start(folder, "--cache-mb", 4, tiny(folder), slow(folder))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("plain")
    server = Server.start(folder, tiny(folder), slow(folder))
    yield server
    server.stop()


@pytest.mark.processes
def test_a_server_gives_the_same_bits_again_and_counts_it(server: Server, plain: Server) -> None:
    before = server.counts("tiny")
    answers = [server.infer("tiny", image(1)) for _ in range(3)]
    assert set(answers) == {plain.infer("tiny", image(1))}
    gained = {name: count - before[name] for name, count in server.counts("tiny").items()}
    assert gained == {"execution": 1, "success": 3, "cache_hit": 2, "cache_miss": 1}


@pytest.mark.processes
def test_a_hit_adds_nothing_to_the_queue_and_to_the_model(server: Server) -> None:
    server.infer("tiny", image(2))
    before = server.stats("tiny")
    server.infer("tiny", image(2))
    after = server.stats("tiny")
    for name in ("execution_count", "inference_count", "batch_stats"):
        assert after[name] == before[name]
    for name in ("queue", "compute_input", "compute_infer", "cache_miss"):
        assert after["inference_stats"][name] == before["inference_stats"][name]
    assert after["inference_stats"]["cache_hit"]["ns"] > before["inference_stats"]["cache_hit"]["ns"]


@pytest.mark.processes
def test_a_server_runs_equal_requests_once(server: Server, plain: Server) -> None:
    before = server.counts("slow")
    assert set(server.all("slow", [image(3)] * 40, at_once=20)) == {plain.infer("slow", image(3))}
    after = server.counts("slow")
    assert after["execution"] - before["execution"] == after["cache_miss"] - before["cache_miss"] == 1
    assert after["cache_hit"] - before["cache_hit"] == 39


@pytest.mark.processes
def test_models_do_not_answer_for_each_other(server: Server, plain: Server) -> None:
    for model in ("tiny", "slow", "tiny", "slow"):
        assert server.infer(model, image(4)) == plain.infer(model, image(4))


@pytest.mark.processes
def test_a_server_says_that_it_caches(server: Server, plain: Server) -> None:
    server.infer("tiny", image(5))
    assert server.cache_state("tiny") == "answers are cached for 60 s, 4 MB a worker"
    assert json.loads(server.get("/v2/models/tiny/config"))["response_cache"] == {"enable": True}
    assert "response_cache" not in json.loads(plain.get("/v2/models/tiny/config"))
    assert plain.cache_state("tiny") == ""
    metrics = server.get("/metrics", is_admin=True)
    for name in ("num_hits", "num_misses", "hit_duration", "miss_duration"):
        assert f'nv_cache_{name}_per_model{{model="tiny",version="1.2.0"}}' in metrics


@pytest.mark.processes
def test_without_the_option_every_request_runs(plain: Server) -> None:
    before = plain.counts("tiny")
    for _ in range(3):
        plain.infer("tiny", image(6))
    after = plain.counts("tiny")
    assert after["execution"] - before["execution"] == 3
    assert (after["cache_hit"], after["cache_miss"]) == (0, 0)


@pytest.mark.processes
def test_a_server_forgets_after_its_time(tmp_path: Path) -> None:
    server = Server.start(tmp_path, "--cache-mb", 1, "--cache-ttl-s", 0.05, tiny(tmp_path))
    try:
        for _ in range(2):
            server.infer("tiny", image(7))
            time.sleep(0.1)
        assert server.counts("tiny") == {"execution": 2, "success": 2, "cache_hit": 0, "cache_miss": 2}
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--cache-redis", "redis://127.0.0.1"), "add --cache-mb"),
        (("--cache-mb", "1", "--cache-redis", "http://:hush@127.0.0.1"), "use redis://HOST:PORT"),
        (("--cache-mb", "1", "--cache-redis", "redis://:hush@127.0.0.1:99999"), "use redis://HOST:PORT"),
        (("--cache-mb", "1", "--cache-redis", "redis://:hush@127.0.0.1?color=red"), "use redis://HOST:PORT"),
        (("--cache-mb", "1", "--cache-ttl-s", "0"), "got 0"),
        (("--cache-mb", "-1"), "got -1"),
    ],
)
def test_options_that_cannot_be_are_refused(options: tuple[str, ...], message: str, tmp_path: Path) -> None:
    ended = run_edgekit("serve", str(tmp_path), *options)
    assert ended.returncode in (2, 4)  # an option by itself, options together
    assert message in ended.stderr
    assert "hush" not in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_answer_that_cannot_be_kept_ends_every_wait() -> None:
    def no_memory(*_: object) -> np.ndarray:
        raise MemoryError

    async def run() -> list[BaseException]:
        job: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        flights = Flights(lambda flight: job, no_memory)
        waits = [flights.submit("key", sample(1), NEVER_S) for _ in range(3)]
        job.set_result(Answer(sample(2), 0, 0, 1))
        return await asyncio.wait_for(asyncio.gather(*waits, return_exceptions=True), 5)

    assert [type(each) for each in asyncio.run(run())] == [MemoryError] * 3
