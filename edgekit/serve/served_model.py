"""One model in one worker: its instances, its queue, its counters, and the answers that its bundle gives."""

from __future__ import annotations

import math
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from time import perf_counter_ns, time
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from edgekit.device.commands.serve import Settings
from edgekit.runner import bundle as bundles
from edgekit.runner import output_vector, postprocess
from edgekit.runner.errors import BackendError, InputError, RunnerError, TrustError
from edgekit.runner.model import Model, open_model
from edgekit.serve import counters, wire
from edgekit.serve.batcher import Answer, Batcher
from edgekit.serve.counters import FIELDS, PARTS, Memory
from edgekit.serve.errors import RequestError
from edgekit.serve.repository import ValidatedBundle, open_batches
from edgekit.serve.timeline import timed

if TYPE_CHECKING:
    from edgekit.serve.cache import AnswerCache, WorkerCache
    from edgekit.serve.watch import Watcher

OUTPUT, ANSWER = "output", "answer"
"""Outputs of every model: the network's own values, and what the bundle's task makes of them, as JSON."""


class ServedModel:
    """A proven bundle, opened in this process. `name` is its own among those served, `row` are its counters."""

    def __init__(self, name: str, validated: ValidatedBundle, settings: Settings, row: memoryview) -> None:
        bundle = bundles.read(validated.source)
        if bundle.identity != validated.identity:
            raise TrustError(f"{validated.path}: was changed after it was proven; load it again")
        self.name, self.bundle, self.row = name, validated, row
        self.model = open_model(bundle, validated.threads, validated.interpreter)
        self.manifest, self.members = bundle.manifest, bundle.members
        self.curve = validated.curve if settings.batch else type(validated.curve)({1: validated.ms[1]})
        self._batches = open_batches(self.model, self.curve.sizes)
        self._pool = None if self.curve.is_inline else ThreadPoolExecutor(1, "model")
        delay_s = settings.queue_delay_ms / 1e3
        self.batcher = Batcher(self._execute, self.curve, settings.queue, self._pool, delay_s)
        self.input = wire.model_input(self.manifest.raw)
        self._values = {OUTPUT: self.manifest.output_shape}
        if len(self.manifest.outputs) > 1:
            self._values = {each.name: each.answer for each in self.manifest.outputs}
        self.outputs = (*self._values, ANSWER)
        self.binary_values = tuple(wire.RequestedOutput(name, True, 0) for name in self._values)
        self.users = 0  # requests that hold this model, whether they wait, run, or are still being received
        self.cache: AnswerCache | None = None
        self.watcher: Watcher | None = _watcher(name, self.model, self._pool, settings) if settings.watch else None

    async def put_cache(self, remembered: WorkerCache) -> None:
        """Put a cache before the queue."""
        from edgekit.serve.cache import AnswerCache

        shape = self.manifest.output_shape
        self.cache = AnswerCache(remembered, self.bundle, self.prepare, self.batcher, shape, self.row)
        await self.cache.open()

    @timed("preprocess")
    def prepare(self, samples: np.ndarray) -> np.ndarray:
        """Model inputs (n, …) of raw samples (n, *raw); RequestError (400) for one that the bundle does not take."""
        started = perf_counter_ns()
        try:
            x = (
                self.model.prepare(samples[0])
                if len(samples) == 1
                else np.concatenate([self.model.prepare(raw) for raw in samples])
            )
        except InputError as error:
            raise RequestError(400, str(error)) from None
        counters.took(self.row, "compute_input", perf_counter_ns() - started)
        return x

    def _execute(self, x: np.ndarray) -> np.ndarray:
        """One call of an instance; in the worker's thread, or in the model's own."""
        started = perf_counter_ns()
        y = self.model.execute(x)[None] if len(x) == 1 else self._batches[len(x)].execute(x)
        place = FIELDS.get(f"batch_{len(x)}_count")
        self.row[FIELDS["execution_count"]] += 1
        if place is not None:
            self.row[place] += 1
            self.row[place + 1] += perf_counter_ns() - started
        return y

    def finished(self, answer: Answer, arrived_ns: int) -> None:
        """Count an answer that is on its way."""
        row, count = self.row, len(answer.outputs)
        took_ns = perf_counter_ns() - arrived_ns
        counters.took(row, "success", took_ns)
        if answer.batch:  # 0 where the answer was remembered, and the model not asked
            counters.took(row, "queue", answer.queue_ns)
            counters.took(row, "compute_infer", answer.execute_ns)
            row[FIELDS["inference_count"]] += count
            row[FIELDS["last_inference_ms"]] = int(time() * 1e3)

    @timed("postprocess")
    def tensors(
        self, outputs: np.ndarray, samples: np.ndarray, wanted: tuple[wire.RequestedOutput, ...] | None, binary: bool
    ) -> list[tuple[wire.Tensor, bool]]:
        """What a request asks for, each with whether it goes as binary; without `wanted`, all there is."""
        started = perf_counter_ns()
        try:
            postprocess.check_finite(outputs)
        except BackendError as error:
            raise RequestError(500, str(error)) from None
        asked = wanted if wanted is not None else tuple(wire.RequestedOutput(name, binary, 0) for name in self.outputs)
        made = [(self._tensor(each, outputs, samples), each.binary) for each in asked]
        counters.took(self.row, "compute_output", perf_counter_ns() - started)
        return made

    def _tensor(self, wanted: wire.RequestedOutput, outputs: np.ndarray, samples: np.ndarray) -> wire.Tensor:
        if wanted.name == ANSWER:
            if wanted.classes:
                raise RequestError(400, f"outputs: classification is of the model's own values, not of {ANSWER!r}")
            texts = [orjson.dumps(each).decode() for each in self.answers(outputs, samples)]
            return wire.Tensor(ANSWER, "BYTES", (len(outputs), 1), texts)
        values = outputs if len(self._values) == 1 else self._one_of_several(outputs, wanted.name)
        if wanted.classes:
            return self._classes(wanted.name, values, wanted.classes)
        return wire.Tensor(wanted.name, "FP32", values.shape, values)

    def _one_of_several(self, outputs: np.ndarray, name: str) -> np.ndarray:
        parts = output_vector.split(outputs, list(self._values.values()))
        return np.ascontiguousarray(parts[list(self._values).index(name)])

    def _classes(self, name: str, outputs: np.ndarray, count: int) -> wire.Tensor:
        """Triton's classification extension: `value:index:label`, highest value first."""
        if outputs.ndim != 2:
            raise RequestError(
                400, f"outputs: classification needs one axis of values, the output has {list(outputs.shape[1:])}"
            )
        count = min(count, outputs.shape[1])
        labels = self.manifest.labels if len(self.manifest.labels) == outputs.shape[1] else None
        texts = []
        for row in outputs:
            best = (-row).argsort(kind="stable")[:count].tolist()
            texts += [f"{row[index]:f}:{index}" + (f":{labels[index]}" if labels else "") for index in best]
        return wire.Tensor(name, "BYTES", (len(outputs), count), texts)

    @timed("postprocess")
    def answers(
        self,
        outputs: np.ndarray,
        samples: np.ndarray,
        top_k: int = 5,
        sizes: Iterable[tuple[int, int] | None] = repeat(None),
    ) -> list[dict[str, Any]]:
        """Each sample's answer as the bundle's task gives it, without scores and times.

        `sizes` are those of the pictures that the samples were made of, None for anything else.

        An anomaly's answer runs the preprocess steps again: what waits in the queue is budgeted as model inputs alone,
        and an answer out of the cache has had no input.
        """
        found = []
        for row, raw, size in zip(outputs, samples, sizes):
            try:
                facts = self.model.answer(raw, row, top_k, {}, size=size).to_dict()
            except InputError as error:
                raise RequestError(400, str(error)) from None
            except BackendError as error:
                raise RequestError(500, str(error)) from None
            found.append({key: each for key, each in facts.items() if key not in ("scores", "timing_ms")})
        return found

    def close(self) -> None:
        """Let the model's thread end; what runs in it is finished first."""
        if self.watcher is not None:
            self.watcher.close()
        if self._pool is not None:
            self._pool.shutdown(wait=False)

    def metadata(self) -> dict[str, Any]:
        """The protocol's model metadata."""
        return {
            "name": self.name,
            "versions": [self.bundle.version],
            "platform": f"edgekit_{self.manifest.target}",
            "inputs": [
                {"name": each.name, "datatype": each.datatype, "shape": [-1, *each.shape]} for each in self.input.inputs
            ],
            "outputs": [
                *({"name": name, "datatype": "FP32", "shape": [-1, *shape]} for name, shape in self._values.items()),
                {"name": ANSWER, "datatype": "BYTES", "shape": [-1, 1]},
            ],
        }

    def config(self, workers: int, delay_ms: float) -> dict[str, Any]:
        """The model's configuration in Triton's words, true of this server."""
        sizes = self.curve.sizes
        batching: dict[str, Any] = {
            "dynamic_batching": {
                "preferred_batch_size": list(sizes[1:]),
                "max_queue_delay_microseconds": int(delay_ms * 1e3),
            }
        }
        return {
            "name": self.name,
            "platform": f"edgekit_{self.manifest.target}",
            "backend": "edgekit",
            "version_policy": {"latest": {"num_versions": 1}},
            "max_batch_size": wire.MOST_SAMPLES,
            "input": [
                {"name": each.name, "data_type": f"TYPE_{each.datatype}", "dims": list(each.shape)}
                for each in self.input.inputs
            ],
            "output": [
                *({"name": name, "data_type": "TYPE_FP32", "dims": list(dims)} for name, dims in self._values.items()),
                {"name": ANSWER, "data_type": "TYPE_STRING", "dims": [1]},
            ],
            "instance_group": [{"name": self.bundle.interpreter, "kind": "KIND_CPU", "count": workers}],
            **(batching if self.curve.pays else {}),
            **({"response_cache": {"enable": True}} if self.cache is not None else {}),
        }

    def facts(self, memory: Memory, slot: int) -> dict[str, Any]:
        """For the page."""
        sums = memory.sums(slot)
        return {
            "name": self.name,
            "version": self.bundle.version,
            "task": self.manifest.task,
            "target": self.manifest.target,
            "interpreter": f"{self.bundle.interpreter} {self.bundle.interpreter_version}",
            "input": self.input.describe(),
            "kind": self.manifest.raw.kind,
            "values": math.prod(self.manifest.raw.shape),
            "batching": self.curve.verdict(),
            "cache": self.cache.state if self.cache is not None else "",
            "cache_hits": sums["cache_hit_count"],
            "cache_misses": sums["cache_miss_count"],
            "requests": sums["success_count"],
            "failures": sums["fail_count"],
            "refused": sums["refused_busy"] + sums["refused_late"],
            "pending": sums["pending"],
            **memory.percentiles_ms(slot, "success"),
            "parts": {part: memory.percentiles_ms(slot, kind) for part, kind in PARTS.items()},
        }


def _watcher(name: str, model: Model, pool: ThreadPoolExecutor | None, settings: Settings) -> Watcher | None:
    """None where the bundle has no reference, or a broken one; the supervisor says so."""
    from edgekit.serve.watch import Watcher

    try:
        return Watcher(name, model, pool, settings.watch_per_s, settings.canary_s)
    except RunnerError:
        return None
