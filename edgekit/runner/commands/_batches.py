"""`predict --batch`: samples of files, several per model call, answered in the order of the files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edgekit.runner import batch, inputs
from edgekit.runner.errors import BackendError, InputError
from edgekit.runner.model import FileAnswer
from edgekit.runner.native_stderr import quiet_native

if TYPE_CHECKING:
    from edgekit.runner.inputs.windows import Location
    from edgekit.runner.model import Model

    Outcome = tuple[str, FileAnswer | None, float, InputError | None]
    """A path, the answer to a sample in it, the time in ms that reading the sample took, and the error if any."""


class PreparedSample(NamedTuple):
    """A sample that is ready for the model, or the error in its place. `file` is the number of its path, from 0."""

    file: int
    path: str
    error: InputError | None
    raw: np.ndarray | None = None
    span: Location | None = None
    x: np.ndarray | None = None
    read_ms: float = 0.0
    preprocess_ms: float = 0.0
    size: tuple[int, int] | None = None
    sample: np.ndarray | None = None


class Batches:
    """Instances of a model for several batch sizes, each opened when it is first needed."""

    def __init__(self, model: Model, size: int) -> None:
        self._model = model
        self._sizes = sorted({size, *(1 << bit for bit in range(size.bit_length()) if 1 << bit < size)})
        self._opened: dict[int, batch.BatchedModel] = {}
        self._open(size)

    def execute(self, xs: Sequence[np.ndarray]) -> Iterator[tuple[np.ndarray, float]]:
        """Yield the outputs of each sample, with its share of the batch's time in milliseconds."""
        done = 0
        for size in batch.split_into_batches(len(xs), self._sizes):
            instance = self._open(size)
            started = perf_counter_ns()
            outputs = instance.execute(np.concatenate(xs[done : done + size]))
            self._model.observers.executed(size)
            sample_ms = (perf_counter_ns() - started) / 1e6 / size
            yield from ((each, sample_ms) for each in outputs)
            done += size

    def _open(self, size: int) -> batch.BatchedModel:
        if size not in self._opened:
            try:
                with quiet_native():
                    self._opened[size] = batch.open_batch(self._model, size)
            except BackendError as error:
                raise BackendError(f"--batch: {error}; leave --batch out, or use another interpreter or size") from None
        return self._opened[size]


def batched_answers(model: Model, paths: Sequence[str], size: int, top_k: int, strict: bool) -> Iterator[Outcome]:
    """Yield the answers of `predict` for each path, in order.

    Each call takes `size` samples; the last ones are split into smaller batches.
    """
    batches = Batches(model, size)
    waiting: list[PreparedSample] = []
    refused: set[int] = set()
    ready = 0
    for each in _prepare_samples(model, paths, strict):
        waiting.append(each)
        ready += each.error is None
        if ready == size:
            yield from _answer_batch(model, batches, waiting, top_k, refused)
            waiting, ready = [], 0
    yield from _answer_batch(model, batches, waiting, top_k, refused)


def _prepare_samples(model: Model, paths: Sequence[str], strict: bool) -> Iterator[PreparedSample]:
    for file, path in enumerate(paths):
        started = perf_counter_ns()
        try:
            samples = model.observers.reading
            for sample in samples(inputs.samples, path, model.manifest.raw, strict, model.bundle.members):
                read = perf_counter_ns()
                try:
                    x, prepared = model.prepare_with_sample(sample.raw)
                except InputError as error:
                    model.observers.refused(error)
                    raise _with_location(path, sample.span, error) from None
                times_ms = (read - started) / 1e6, (perf_counter_ns() - read) / 1e6
                yield PreparedSample(file, path, None, sample.raw, sample.span, x, *times_ms, sample.size, prepared)
                started = perf_counter_ns()
        except InputError as error:
            yield PreparedSample(file, path, error)


def _answer_batch(
    model: Model, batches: Batches, waiting: Sequence[PreparedSample], top_k: int, refused: set[int]
) -> Iterator[Outcome]:
    """Yield the answers of a batch. After an error, further samples of its file are skipped, as without --batch."""
    outputs = batches.execute([each.x for each in waiting if each.x is not None])
    for each in waiting:
        result = None if each.raw is None else next(outputs)
        if each.file in refused:
            continue
        error = each.error
        if each.raw is not None and result is not None:
            timing_ms = {"preprocess": each.preprocess_ms, "execute": result[1]}
            try:
                prediction = model.answer(each.raw, result[0], top_k, timing_ms, each.sample, each.size)
                yield each.path, FileAnswer(prediction, each.span), each.read_ms, None
                continue
            except InputError as refusal:
                model.observers.refused(refusal)
                error = _with_location(each.path, each.span, refusal)
        refused.add(each.file)
        yield each.path, None, 0.0, error


def _with_location(path: str, span: Location | None, error: InputError) -> InputError:
    return InputError(f"{path}{f', {span}' if span else ''}: {error}")
