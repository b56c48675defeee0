"""`Model`: an opened bundle, which turns raw samples into answers."""

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
    specs, states = (manifest.inputs, manifest.outputs), manifest.states or ()
    backend = open_backend(manifest.target, files, *specs, threads, interpreter, device, 1, states, manifest.head)
    return Model(bundle, backend, threads, device)


def check_range(raw: np.ndarray, spec: RawSpec) -> None:
    """Raise InputError for a sample with NaN or infinity, or with values outside the range that the bundle declares."""
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
            f"sample: token ids from {low} to {high}; the bundle's vocabulary has 0 to {limits[1]}, so "
            f"make them with that vocabulary"
        )
    raise InputError(
        f"sample: values from {low:.6g} to {high:.6g}; the bundle takes {limits[0]:g} to {limits[1]:g}; "
        "scale the sample like the training data"
    )


class FileAnswer(NamedTuple):
    """The answer to a file, or to the part of it that `span` names."""

    prediction: Prediction
    span: Location | None


class Model:
    """A verified bundle opened on an interpreter. It is not thread-safe: open one model per thread.

    The states of a recurrent model start from zeros for each `predict` call, file and stream, and for `step` after
    `reset`.

    Attributes
    ----------
    manifest : Manifest
        What the bundle declares, for example `manifest.raw.shape` and `manifest.labels`.
    observers : Observers
        Objects that are notified of each answer.
    """

    def __init__(self, bundle: Bundle, backend: Backend, threads: int = 1, device: str = "CPU") -> None:
        manifest = self.manifest = bundle.manifest
        self.bundle, self.backend, self.threads, self.device = bundle, backend, threads, device
        self.release: Any = None  # set by `load("current")`; has `changed()`
        self.observers = Observers()
        self.monitor: Any = None  # set by `load(monitor=…)`
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
        """Return the model's input tensor for one raw sample.

        Parameters
        ----------
        raw : numpy.ndarray
            An array of exactly the shape and dtype in `manifest.raw`.

        Raises
        ------
        InputError
            The sample has another shape or dtype, or values out of range.
        """
        self.check(raw)
        return self._encode(raw)

    def prepare_with_sample(self, raw: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the model's input, and the preprocessed sample if the task's answer needs it, else None.

        Pass the sample to `answer`, so that the steps run only once.

        Parameters
        ----------
        raw : numpy.ndarray
            An array of exactly the shape and dtype in `manifest.raw`.

        Raises
        ------
        InputError
            The sample has another shape or dtype, or values out of range.
        """
        self.check(raw)
        return (self._encode(raw), None) if self._encode_with_sample is None else self._encode_with_sample(raw)

    def check(self, raw: np.ndarray) -> None:
        """Check a raw sample against `manifest.raw`.

        Parameters
        ----------
        raw : numpy.ndarray
            The sample.

        Raises
        ------
        InputError
            The sample has another shape or dtype, or values out of range.
        """
        if type(raw) not in ARRAY_TYPES or raw.shape != self._raw_shape or raw.dtype != self._raw_dtype:
            spec = self.manifest.raw
            got = f"{raw.dtype}{list(raw.shape)}" if isinstance(raw, np.ndarray) else type(raw).__name__
            raise InputError(f"sample: got {got}; the bundle takes {spec.dtype}{list(spec.shape)} ({spec.kind})")
        if self._has_limits:
            check_range(raw, self.manifest.raw)

    def execute(self, x: np.ndarray, states: States | None = None) -> np.ndarray:
        """Run the model and return its outputs as float32 without the batch axis.

        Several outputs are joined (`output_vector.py`).

        Parameters
        ----------
        x : numpy.ndarray
            An input tensor from `prepare`.
        states : States, optional
            Recurrent states to start from, updated in place. By default they are zeros.

        Raises
        ------
        BackendError
            The interpreter failed.
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
        """Return recurrent states for a new stream, all zeros, or None if the model has none."""
        return States(self.backend) if self.manifest.states else None

    def reset(self) -> None:
        """Let the next `step` start from zeros."""
        self._states = None

    def step(self, raw: RawInput, top_k: int = 5, size: tuple[int, int] | None = None) -> Prediction:
        """Return the answer to the next sample of a stream, like `predict`.

        The recurrent states continue from the sample before. An error resets them.
        """
        states, self._states = self._states or self.states(), None
        answer = self.predict(raw, top_k, size, states)
        self._states = states
        return answer

    def predict(
        self, raw: RawInput, top_k: int = 5, size: tuple[int, int] | None = None, states: States | None = None
    ) -> Prediction:
        """Run the model on one raw sample.

        Parameters
        ----------
        raw : numpy.ndarray or dict of numpy.ndarray
            Exactly the shape and dtype in `manifest.raw`; a dict by name for models with several inputs.
        top_k : int
            Number of classes that a classification lists. Other tasks ignore it.
        size : tuple of int, optional
            (width, height) of the picture from which the sample was made, to get boxes or masks in its pixels.
        states : States, optional
            Recurrent states of the stream that the sample continues, as `states()` returned them. By default, the
            sample starts a stream.

        Returns
        -------
        Classification, Detection, Segmentation, Regression, MultiLabel, Anomaly, Embedding or Raw
            The answer, depending on the bundle's task. `timing_ms` holds the time of each part.

        Raises
        ------
        InputError
            The sample has another shape or dtype or values out of range, or the outputs for it cannot become an answer.
        BackendError
            The interpreter failed, or its outputs are not finite.

        Examples
        --------
        >>> import numpy as np
        >>> from edgekit.runner import load
        >>> model = load("digits-tflite-1.0.0.edge.zip", trial=False)
        >>> answer = model.predict(np.load("sample.npy"), top_k=2)
        >>> answer.label
        '3'
        >>> [label for label, probability in answer.top]
        ['3', '8']
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
        raw : numpy.ndarray
            The sample.
        outputs : numpy.ndarray
            What `execute` returned for it, or a row of a batch's outputs.
        top_k : int
            Number of classes that a classification lists.
        timing_ms : dict of str to float
            Times so far. It becomes part of the answer, and `postprocess` is added.
        sample : numpy.ndarray, optional
            The preprocessed sample, if it is already known.
        size : tuple of int, optional
            (width, height) of the picture from which the sample was made, to get boxes or masks in its pixels.

        Raises
        ------
        InputError
            The outputs cannot become an answer, for example an embedding of zeros.
        BackendError
            The outputs are not finite.
        """
        started = perf_counter_ns()
        postprocess.check_finite(outputs)
        extra = () if self._steps is None else (_channels_first(self._steps(raw) if sample is None else sample),)
        answer: Prediction = self._answer(outputs, postprocess.check_top_k(top_k), timing_ms, *extra)
        if size is not None and self._in_picture is not None:
            answer = self._in_picture(answer, self.manifest.raw, size)
        timing_ms["postprocess"] = (perf_counter_ns() - started) / 1e6
        self.observers.answered(raw, outputs, answer)
        return answer

    def predict_file(self, path: str | os.PathLike[str], top_k: int = 5, strict: bool = False) -> Iterator[FileAnswer]:
        """Yield answers for a file: one, or one for each window of a recording.

        The steps of the bundle's input path turn the file into samples, as in training. Recurrent states start from
        zeros for each file.

        Parameters
        ----------
        path : str or path-like
            A picture, a WAV or CSV file, a text, an `.npy` array, or an `.npz` file of several tensors.
        top_k : int
            Number of classes that a classification lists.
        strict : bool
            True refuses a file that has to be turned, resized, mixed, resampled or cut.

        Raises
        ------
        InputError
            The file cannot be read, or does not match the bundle.
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
        """Return answers for the windows of a stream of sound or sensor values, each as soon as its window is complete.

        A window's answer is, bit for bit, that of `predict_file` for the same samples.

        Parameters
        ----------
        source : binary file, or iterable of bytes or numpy.ndarray
            Where the stream comes from.
        format : str, optional
            The format of bytes: `"s16le"`, `"S16_LE"` and the like or `"wav"` for sound, `"csv"` or `"f32le"` for
            sensors. Arrays need none.
        **options
            The other options of `edgekit.runner.streaming.stream.Stream`, such as `hop`.

        Returns
        -------
        Stream
            An iterator of `StreamAnswer`.

        Raises
        ------
        InputError
            The stream can never match the bundle. Iterating raises it too, after all answers, if the stream ended in
            the middle of a sample or changed its format.

        Examples
        --------
        >>> import numpy as np
        >>> from edgekit.runner import load
        >>> model = load("keywords-tflite-1.0.0.edge.zip", trial=False)
        >>> second = np.zeros(16000, np.float32)
        >>> for answer in model.stream([second, second], hop=16000):
        ...     print(answer.span, answer.prediction.label)
        0.00–1.00 s silence
        1.00–2.00 s silence
        """
        from edgekit.runner.streaming.stream import Stream

        return Stream(self, source, format, **options)

    def golden(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the golden samples (n, *raw) and the outputs (n, *output) recorded for them.

        Raises
        ------
        BundleError
            They are not plain arrays, or their shapes do not match.
        """
        from edgekit.runner.selftest import golden_vectors

        return golden_vectors(self.manifest, self._members)

    def selftest(self, most_s: float | None = None) -> SelftestReport:
        """Run the golden samples and compare the outputs with the recorded ones.

        Parameters
        ----------
        most_s : float, optional
            Seconds after which no further sample is run. By default, all samples are run.
        """
        from edgekit.runner.selftest import selftest

        return selftest(self, most_s)


def _channels_first(x: np.ndarray) -> np.ndarray:
    """Return a preprocessed sample with a picture's channels first, as in the model's outputs."""
    return x.transpose(2, 0, 1) if x.ndim == 3 else x
