"""One model in one worker: its instances, its queue, its counters, and how its outputs become answers."""

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
from edgekit.serve.counters import FIELDS, PARTS, SharedCounters
from edgekit.serve.errors import RequestError
from edgekit.serve.repository import ValidatedBundle, open_batches
from edgekit.serve.timeline import timed_part

if TYPE_CHECKING:
    from edgekit.serve.cache import AnswerCache, WorkerCache
    from edgekit.serve.watch import Watcher

OUTPUT, ANSWER = "output", "answer"
"""The names of a model's two outputs: the values of the network, and the answer, as JSON, that the task derives from
these values.

If a network has several outputs, each of them keeps the name that it has in the network.
"""


class ServedModel:
    """A validated bundle, opened in this process.

    Parameters
    ----------
    name
        The name under which the model is served.
    validated
        The bundle.
    settings
        The settings of the server.
    row
        The counters that this worker writes for the model.

    Raises
    ------
    TrustError
        The file has changed since it was validated.
    """

    def __init__(self, name: str, validated: ValidatedBundle, settings: Settings, row: memoryview) -> None:
        bundle = bundles.read(validated.source)
        if bundle.identity != validated.identity:
            raise TrustError(f"{validated.path}: the file has changed since it was validated; load it again")
        self.name, self.bundle, self.row = name, validated, row
        self.model = open_model(bundle, validated.threads, validated.interpreter)
        self.manifest, self.members = bundle.manifest, bundle.members
        self.curve = validated.curve if settings.batch else type(validated.curve)({1: validated.ms[1]})
        self._batches = open_batches(self.model, self.curve.sizes)
        self._pool = None if self.curve.is_inline else ThreadPoolExecutor(1, "model")
        delay_s = settings.queue_delay_ms / 1e3
        self.batcher = Batcher(self._execute, self.curve, settings.queue, self._pool, delay_s)
        self.input = wire.input_of(self.manifest.raw)
        self._values = {OUTPUT: self.manifest.output_shape}
        if len(self.manifest.outputs) > 1:
            self._values = {each.name: each.answer for each in self.manifest.outputs}
        self.outputs = (*self._values, ANSWER)
        self.binary_values = tuple(wire.RequestedOutput(name, True, 0) for name in self._values)
        self.users = 0  # requests to this model that wait, run, or are still being received
        self.cache: AnswerCache | None = None
        self.watcher: Watcher | None = _watcher(name, self.model, self._pool, settings) if settings.watch else None

    async def add_cache(self, worker_cache: WorkerCache) -> None:
        """Put an answer cache in front of the queue."""
        from edgekit.serve.cache import AnswerCache

        shape = self.manifest.output_shape
        self.cache = AnswerCache(worker_cache, self.bundle, self.prepare, self.batcher, shape, self.row)
        await self.cache.open()

    @timed_part("preprocess")
    def prepare(self, samples: np.ndarray) -> np.ndarray:
        """Compute input tensors (n, …) from raw samples (n, *raw).

        Raises RequestError (400) if a sample is not one that the bundle accepts.
        """
        started_ns = perf_counter_ns()
        try:
            x = (
                self.model.prepare(samples[0])
                if len(samples) == 1
                else np.concatenate([self.model.prepare(raw) for raw in samples])
            )
        except InputError as error:
            raise RequestError(400, str(error)) from None
        counters.observe(self.row, "compute_input", perf_counter_ns() - started_ns)
        return x

    def _execute(self, x: np.ndarray) -> np.ndarray:
        """Run one batch. Called on the event loop, or in the model's own thread."""
        started_ns = perf_counter_ns()
        y = self.model.execute(x)[None] if len(x) == 1 else self._batches[len(x)].execute(x)
        field = FIELDS.get(f"batch_{len(x)}_count")
        self.row[FIELDS["execution_count"]] += 1
        if field is not None:
            self.row[field] += 1
            self.row[field + 1] += perf_counter_ns() - started_ns
        return y

    def count_answer(self, answer: Answer, arrived_ns: int) -> None:
        """Count an answer that is about to be sent."""
        row, count = self.row, len(answer.outputs)
        duration_ns = perf_counter_ns() - arrived_ns
        counters.observe(row, "success", duration_ns)
        if answer.batch:  # 0 if the answer came from the cache
            counters.observe(row, "queue", answer.queue_ns)
            counters.observe(row, "compute_infer", answer.execute_ns)
            row[FIELDS["inference_count"]] += count
            row[FIELDS["last_inference_ms"]] = int(time() * 1e3)

    @timed_part("postprocess")
    def tensors(
        self,
        outputs: np.ndarray,
        samples: np.ndarray,
        requested_outputs: tuple[wire.RequestedOutput, ...] | None,
        is_binary: bool,
    ) -> list[tuple[wire.Tensor, bool]]:
        """Return the outputs that a request asks for, each with a flag that says whether it is sent as binary.

        If `requested_outputs` is None, all outputs are returned, and `is_binary` says whether they are sent as binary
        or as JSON. Raises RequestError (500) if the outputs are not finite.
        """
        started_ns = perf_counter_ns()
        try:
            postprocess.check_finite(outputs)
        except BackendError as error:
            raise RequestError(500, str(error)) from None
        outputs_to_send = (
            requested_outputs
            if requested_outputs is not None
            else tuple(wire.RequestedOutput(name, is_binary, 0) for name in self.outputs)
        )
        tensors = [(self._tensor(each, outputs, samples), each.is_binary) for each in outputs_to_send]
        counters.observe(self.row, "compute_output", perf_counter_ns() - started_ns)
        return tensors

    def _tensor(self, requested: wire.RequestedOutput, outputs: np.ndarray, samples: np.ndarray) -> wire.Tensor:
        if requested.name == ANSWER:
            if requested.classes:
                raise RequestError(400, f"outputs: classification applies to the model's own values, not to {ANSWER!r}")
            texts = [orjson.dumps(each).decode() for each in self.answers(outputs, samples)]
            return wire.Tensor(ANSWER, "BYTES", (len(outputs), 1), texts)
        values = outputs if len(self._values) == 1 else self._one_of_several(outputs, requested.name)
        if requested.classes:
            return self._classes(requested.name, values, requested.classes)
        return wire.Tensor(requested.name, "FP32", values.shape, values)

    def _one_of_several(self, outputs: np.ndarray, name: str) -> np.ndarray:
        parts = output_vector.split(outputs, list(self._values.values()))
        return np.ascontiguousarray(parts[list(self._values).index(name)])

    def _classes(self, name: str, outputs: np.ndarray, count: int) -> wire.Tensor:
        """Return the classes with the highest values as `value:index:label`, like Triton's classification extension."""
        if outputs.ndim != 2:
            raise RequestError(
                400, f"outputs: classification needs one axis of values, but the output has {list(outputs.shape[1:])}"
            )
        count = min(count, outputs.shape[1])
        labels = self.manifest.labels if len(self.manifest.labels) == outputs.shape[1] else None
        texts = []
        for row in outputs:
            best = (-row).argsort(kind="stable")[:count].tolist()
            texts += [f"{row[index]:f}:{index}" + (f":{labels[index]}" if labels else "") for index in best]
        return wire.Tensor(name, "BYTES", (len(outputs), count), texts)

    @timed_part("postprocess")
    def answers(
        self,
        outputs: np.ndarray,
        samples: np.ndarray,
        top_k: int = 5,
        sizes: Iterable[tuple[int, int] | None] = repeat(None),
    ) -> list[dict[str, Any]]:
        """Return each sample's answer in the form of the bundle's task, without scores and times.

        `sizes` are the original sizes of the pictures that the samples were made from, None for other samples.

        For anomaly detection the preprocessing runs a second time, because the input tensors are not kept: the memory
        budget covers them only while they wait in the queue, and for answers from the cache there are none.
        """
        answers = []
        for row, raw, size in zip(outputs, samples, sizes):
            try:
                facts = self.model.answer(raw, row, top_k, {}, size=size).to_dict()
            except InputError as error:
                raise RequestError(400, str(error)) from None
            except BackendError as error:
                raise RequestError(500, str(error)) from None
            answers.append({key: each for key, each in facts.items() if key not in ("scores", "timing_ms")})
        return answers

    def close(self) -> None:
        """Stop watching, and end the model's thread once its current call is finished."""
        if self.watcher is not None:
            self.watcher.close()
        if self._pool is not None:
            self._pool.shutdown(wait=False)

    def metadata(self) -> dict[str, Any]:
        """Return the model metadata of the protocol."""
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
        """Return the model's configuration on this server in Triton's format."""
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
            "max_batch_size": wire.MAX_SAMPLES,
            "input": [
                {"name": each.name, "data_type": f"TYPE_{each.datatype}", "dims": list(each.shape)}
                for each in self.input.inputs
            ],
            "output": [
                *({"name": name, "data_type": "TYPE_FP32", "dims": list(dims)} for name, dims in self._values.items()),
                {"name": ANSWER, "data_type": "TYPE_STRING", "dims": [1]},
            ],
            "instance_group": [{"name": self.bundle.interpreter, "kind": "KIND_CPU", "count": workers}],
            **(batching if self.curve.is_batching_worthwhile else {}),
            **({"response_cache": {"enable": True}} if self.cache is not None else {}),
        }

    def facts(self, memory: SharedCounters, slot: int) -> dict[str, Any]:
        """Return the facts about the model that the server's page shows."""
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
            "batching": self.curve.summary(),
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
    """Return a watcher, or None if the bundle has no valid reference. The supervisor logs the reason."""
    from edgekit.serve.watch import Watcher

    try:
        return Watcher(name, model, pool, settings.watch_per_s, settings.canary_s)
    except RunnerError:
        return None
