"""A bundle, opened: raw sample in, answer out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple, Union

import numpy as np

from edgekit.runner import input_vector, postprocess
from edgekit.runner.backends import Backend, States, open_backend
from edgekit.runner.errors import BackendError, InputError, RunnerError
from edgekit.runner.input_encoding import encoder, encoder_with_sample
from edgekit.runner.observers import Observers
from edgekit.runner.preprocess.transform import pipeline

if TYPE_CHECKING:
    from edgekit.runner.bundle import Bundle
    from edgekit.runner.bundle.manifest import RawSpec
    from edgekit.runner.inputs.windows import Location
    from edgekit.runner.postprocess import Prediction
    from edgekit.runner.selftest import SelftestReport
    from edgekit.runner.streaming.stream import Stream

    RawInput = Union[np.ndarray, Mapping[str, np.ndarray]]

ARRAY_TYPES = (np.ndarray, np.memmap)
"""Exact types: subclasses such as masked arrays are refused, because their masked values would be used."""


def open_model(bundle: Bundle, threads: int = 1, interpreter: str | None = None, device: str = "CPU") -> Model:
    """Open a verified bundle in this process, without measuring which interpreter is fastest."""
    manifest, files = bundle.manifest, bundle.model_files()
    ends, states = (manifest.inputs, manifest.outputs), manifest.states or ()
    backend = open_backend(manifest.target, files, *ends, threads, interpreter, device, states=states)
    return Model(bundle, backend, threads, device)


def check_range(raw: np.ndarray, spec: RawSpec) -> None:
    """InputError for a sample with NaN or infinity, or with values outside the range that the bundle declares."""
    low, high = np.minimum.reduce(raw, axis=None), np.maximum.reduce(raw, axis=None)
    if not (np.isfinite(low) and np.isfinite(high)):
        raise InputError("sample: holds NaN or infinity; check the sensor or the file")
    if spec.tensors is not None:
        input_vector.check_values(raw, spec.tensors)
    limits = spec.range
    if limits is None or (low >= limits[0] and high <= limits[1]):
        return
    if raw.dtype == np.int32:
        raise InputError(
            f"sample: token ids from {low} to {high}; the bundle's vocabulary has 0 to {limits[1]}, "
            "make them with that vocabulary"
        )
    raise InputError(
        f"sample: values from {low:.6g} to {high:.6g}; the bundle takes {limits[0]:g} to {limits[1]:g}, "
        "scale the sample as the training data were"
    )


class FileAnswer(NamedTuple):
    """What a bundle says of a file, or of the part of it that `span` names."""

    prediction: Prediction
    span: Location | None


class Model:
    """A verified bundle on an interpreter. It is not thread-safe: open one model per thread.

    The states of a recurrent model start from zeros at each `predict`, file and stream; those of `step` after `reset`.
    """

    def __init__(self, bundle: Bundle, backend: Backend, threads: int = 1, device: str = "CPU") -> None:
        manifest = self.manifest = bundle.manifest
        self.bundle, self.backend, self.threads, self.device = bundle, backend, threads, device
        self.release: Any = None  # that of `load("current")`, with `changed()`
        self.observers = Observers()
        self.monitor: Any = None  # that of `load(monitor=…)`
        self._invoke, self._decode, self._tensors = backend.invoke, backend.decode, manifest.raw.tensors
        self._states: States | None = None
        self._members: Mapping[str, bytes] = bundle.members
        self._raw_shape, self._raw_dtype = manifest.raw.shape, np.dtype(manifest.raw.dtype)
        self._has_limits = self._raw_dtype.kind == "f" or self._raw_dtype == np.int32
        self._encode = encoder(manifest, backend)
        self._answer, self._in_picture = postprocess.make_postprocessor(manifest), postprocess.picture_mapper(manifest)
        needs_sample = postprocess.needs_sample(manifest)
        self._steps = pipeline(manifest.preprocess) if needs_sample else None
        self._encode_with_sample = encoder_with_sample(manifest, backend) if needs_sample else None

    def prepare(self, raw: np.ndarray) -> np.ndarray:
        """The model's input tensor for one raw sample.

        Parameters
        ----------
        raw
            An array of exactly the shape and type that `manifest.raw` states.

        Raises
        ------
        InputError
            The sample has another shape, type or range of values.
        """
        self.check(raw)
        return self._encode(raw)

    def prepare_with_sample(self, raw: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """The model's input, and the sample after preprocess where the task's answer needs it; else None.

        `answer` takes the sample, so that the steps run once.

        Parameters
        ----------
        raw
            The sample.

        Raises
        ------
        InputError
            It is not what `manifest.raw` states.
        """
        self.check(raw)
        return (self._encode(raw), None) if self._encode_with_sample is None else self._encode_with_sample(raw)

    def check(self, raw: np.ndarray) -> None:
        """Check a raw sample against what `manifest.raw` states.

        Parameters
        ----------
        raw
            The sample.

        Raises
        ------
        InputError
            It has another shape, type or range of values.
        """
        if type(raw) not in ARRAY_TYPES or raw.shape != self._raw_shape or raw.dtype != self._raw_dtype:
            spec = self.manifest.raw
            got = f"{raw.dtype}{list(raw.shape)}" if isinstance(raw, np.ndarray) else type(raw).__name__
            raise InputError(f"sample: got {got}; the bundle takes {spec.dtype}{list(spec.shape)} ({spec.kind})")
        if self._has_limits:
            check_range(raw, self.manifest.raw)

    def execute(self, x: np.ndarray, states: States | None = None) -> np.ndarray:
        """The model's outputs, float32 without their batch axis; several are joined (`output_vector.py`).

        Parameters
        ----------
        x
            An input tensor, as `prepare` makes it.
        states
            States to start from, updated in place; None starts from zeros.

        Raises
        ------
        BackendError
            The interpreter fails.
        """
        try:
            y = self._invoke(x) if states is None else states.step(x)
        except RunnerError:
            raise
        except Exception as error:  # interpreters share no base class for their errors
            raise BackendError(f"{self.backend.name} failed while running the model: {error}") from error
        outputs: np.ndarray = (y if self._decode is None else self._decode(y))[0]
        return outputs

    def states(self) -> States | None:
        """States for a new stream, all zeros; None where the model has none."""
        return States(self.backend) if self.manifest.states else None

    def reset(self) -> None:
        """Let the next `step` begin with zeros."""
        self._states = None

    def step(self, raw: RawInput, top_k: int = 5, size: tuple[int, int] | None = None) -> Prediction:
        """The answer for the next sample of a stream, as `predict` gives it; an error resets the states."""
        states, self._states = self._states or self.states(), None
        answer = self.predict(raw, top_k, size, states)
        self._states = states
        return answer

    def predict(
        self, raw: RawInput, top_k: int = 5, size: tuple[int, int] | None = None, states: States | None = None
    ) -> Prediction:
        """The answer for one raw sample, of the kind that the bundle's task has.

        Parameters
        ----------
        raw
            An array of exactly the shape and type that `manifest.raw` states; of several tensors, arrays by name.
        top_k
            How many classes the answer of a classification lists.
        size
            (width, height) of the picture that the sample was made of, if boxes are wanted in its pixels.
        states
            Of the stream that the sample goes on with, from `states`; None: it is the first of its stream.

        Raises
        ------
        InputError
            The sample has another shape, type or range of values, or the outputs for it are no answer.
        BackendError
            The interpreter fails, or its outputs are not finite.
        """
        try:
            started = perf_counter_ns()
            vector: Any = raw if self._tensors is None else input_vector.as_vector(raw, self._tensors)
            x, sample = self.prepare_with_sample(vector)
            prepared = perf_counter_ns()
            outputs = self.execute(x) if states is None else self.execute(x, states)
            times_ms = {"preprocess": (prepared - started) / 1e6, "execute": (perf_counter_ns() - prepared) / 1e6}
            return self.answer(vector, outputs, top_k, times_ms, sample, size)
        except RunnerError as error:
            self.observers.refused(error)
            raise

    def answer(
        self,
        raw: np.ndarray,
        outputs: np.ndarray,
        top_k: int,
        timing_ms: dict[str, float],
        sample: np.ndarray | None = None,
        size: tuple[int, int] | None = None,
    ) -> Prediction:
        """Turn the model's outputs for a raw sample into its answer.

        Parameters
        ----------
        raw
            The sample.
        outputs
            What `execute` gave for it, or a row of what a batch gave.
        top_k
            How many classes the answer of a classification lists.
        timing_ms
            Times so far; the answer takes them over, and `postprocess` is added.
        sample
            The sample after preprocess, where that is known already.
        size
            (width, height) of the picture that the sample was made of, if boxes are wanted in its pixels.

        Raises
        ------
        InputError, BackendError
            They are no answer, as an embedding of zeros; or not finite.
        """
        started = perf_counter_ns()
        postprocess.check_finite(outputs)
        also = () if self._steps is None else (_channels_first(self._steps(raw) if sample is None else sample),)
        answer: Prediction = self._answer(outputs, postprocess.check_top_k(top_k), timing_ms, *also)
        if size is not None and self._in_picture is not None:
            answer = self._in_picture(answer, self.manifest.raw, size)
        timing_ms["postprocess"] = (perf_counter_ns() - started) / 1e6
        self.observers.answered(raw, outputs, answer)
        return answer

    def predict_file(self, path: str | os.PathLike[str], top_k: int = 5, strict: bool = False) -> Iterator[FileAnswer]:
        """Answers for a file: one, or, for a recording, one for each window.

        The steps of the bundle's input path make samples of the file, as in training. States begin with each file.

        Parameters
        ----------
        path
            A picture, a WAV or CSV file, a text, an `.npy` array, or an `.npz` of several tensors.
        top_k
            How many classes the answer of a classification lists.
        strict
            True refuses a file that has to be turned, resized, mixed, resampled or cut.

        Raises
        ------
        InputError
            The file cannot be read, or does not fit the bundle.
        """
        from edgekit.runner import inputs

        states = self.states()
        for sample in self.observers.reading(inputs.samples, os.fspath(path), self.manifest.raw, strict, self._members):
            try:
                prediction = self.predict(sample.raw, top_k, sample.size, states)
            except InputError as error:
                raise InputError(f"{path}{f', {sample.span}' if sample.span else ''}: {error}") from None
            yield FileAnswer(prediction, sample.span)

    def stream(self, source: Any, format: str | None = None, **options: Any) -> Stream:
        """Answers for the windows of a stream of sound or of sensors, each as soon as its last sample is there.

        A window's answer is the one that `predict_file` gives for the same samples, bit for bit.

        Parameters
        ----------
        source
            An open binary file, or an iterable of bytes or of numpy arrays.
        format
            Of bytes: `"s16le"`, `"S16_LE"` and the like, `"wav"`; `"csv"` or `"f32le"` of sensors. Arrays need none.
        options
            Those of `edgekit.runner.streaming.stream.Stream`.

        Raises
        ------
        InputError
            The stream cannot fit the bundle; or, behind the answers, it ended in the middle or became another.
        """
        from edgekit.runner.streaming.stream import Stream

        return Stream(self, source, format, **options)

    def golden(self) -> tuple[np.ndarray, np.ndarray]:
        """Golden vectors: raw samples (n, *raw) and the outputs recorded for them (n, *output).

        Raises
        ------
        BundleError
            They are no plain arrays, or their shapes do not fit.
        """
        from edgekit.runner.selftest import golden_vectors

        return golden_vectors(self.manifest, self._members)

    def selftest(self, most_s: float | None = None) -> SelftestReport:
        """Run the golden vectors and compare the outputs with the recorded ones.

        Parameters
        ----------
        most_s
            Seconds after which no further vector is run; None: all are run.
        """
        from edgekit.runner.selftest import selftest

        return selftest(self, most_s)


def _channels_first(x: np.ndarray) -> np.ndarray:
    """A sample after preprocess, a picture's channels in front, as every network has them."""
    return x.transpose(2, 0, 1) if x.ndim == 3 else x
