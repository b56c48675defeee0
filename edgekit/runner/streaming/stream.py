"""A bundle's answers to a stream: one for each window, the same bits as for the same samples in a file."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edgekit.runner import input_encoding, input_path, smoothing
from edgekit.runner.errors import InputError
from edgekit.runner.preprocess import sliding_windows
from edgekit.runner.streaming import audio, back_pressure, rows
from edgekit.runner.streaming.source import Source
from edgekit.runner.streaming.window_cutter import Window, WindowCutter

if TYPE_CHECKING:
    from typing import Protocol

    from edgekit.runner.backends import Backend, States
    from edgekit.runner.bundle.manifest import Manifest, RawSpec
    from edgekit.runner.inputs.windows import Span
    from edgekit.runner.observers import Observers
    from edgekit.runner.postprocess import Prediction

    class Model(Protocol):
        """What a stream asks of an opened bundle."""

        manifest: Manifest
        backend: Backend
        observers: Observers

        def check(self, raw: np.ndarray) -> None: ...

        def prepare_with_sample(self, raw: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]: ...

        def states(self) -> States | None: ...

        def execute(self, x: np.ndarray, states: States | None = None) -> np.ndarray: ...

        def answer(
            self,
            raw: np.ndarray,
            outputs: np.ndarray,
            top_k: int,
            timing_ms: dict[str, float],
            sample: np.ndarray | None = None,
        ) -> Prediction: ...


Note = Callable[[str], object]


class StreamAnswer(NamedTuple):
    """What a bundle says of a window of a stream.

    `prediction` is that of the window alone, as for a file; None where `error` says why the window was refused.
    `smoothed` is the same over time, where the bundle declares it. `latency_ms` is from the arrival of the window's
    last sample to this answer. `dropped` windows of the stream so far were never answered.
    """

    span: Span
    prediction: Prediction | None
    smoothed: Prediction | None
    latency_ms: float
    dropped: int
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        found: dict[str, Any] = {"window": self.span.to_dict(), "latency_ms": self.latency_ms, "dropped": self.dropped}
        if self.prediction is None:
            return {**found, "error": self.error}
        if self.smoothed is not None:
            found["smoothed"] = smoothing.to_json_dict(self.smoothed)
        return {**found, **self.prediction.to_dict()}


class Stream:
    """Answers, one for each window of a source, each as soon as the window is whole. Made by `Model.stream`.

    A model's states begin with zeros, and go on from window to window. After a window that was refused they begin anew.

    Of the `frames` of a window's log-mel spectrogram, `new_frames` are computed, and the others are those of the window
    before. Both are None where the bundle has no such step.

    Parameters
    ----------
    source
        An open binary file, or an iterable of bytes or of numpy arrays. Arrays of a sound are (samples,) or (samples,
        channels), of sensors (rows, channels).
    format
        What the bytes are; None of arrays.
    hop
        From the start of a window to the start of the next, in samples or rows. None: the stride that the bundle
        declares, else half of a window. A model with states takes no other than the declared one, or whole windows.
    rate_hz
        Samples a second of a sound without a header. None: the bundle's.
    channels
        Of a sound without a header. None: one.
    top_k
        How many classes the answer of a classification lists.
    when_slow
        What happens to windows that come faster than they are answered. "drop" drops the oldest that waits, "wait"
        reads no further. None: drop where the source is a pipe, a socket or a device. A model with states waits.
    on_note
        Called with a line for what is no error, such as samples at the end that fill no window.

    Raises
    ------
    InputError
        An option is none, or the stream can never fit the bundle. While it runs: it ended in the middle, or became
        another. That comes behind the answers for all that was whole.
    """

    def __init__(
        self,
        model: Model,
        source: Any,
        format: str | None = None,
        hop: int | None = None,
        rate_hz: int | None = None,
        channels: int | None = None,
        top_k: int = 5,
        when_slow: str | None = None,
        on_note: Note | None = None,
    ) -> None:
        raw = model.manifest.raw
        self._model, self._top_k = model, top_k
        self._states = model.states()
        self.hop = _hop(raw, hop, self._states is not None)
        _whole_number("top_k", top_k)
        taken = Source(source)
        if when_slow not in (None, *back_pressure.POLICIES):
            raise InputError(f"when_slow: got {when_slow!r}; use one of {', '.join(back_pressure.POLICIES)}")
        if self._states is not None and when_slow == "drop":
            raise InputError("when_slow: the model has states, which want every window; use wait")
        self.when_slow = when_slow or ("drop" if taken.is_live and self._states is None else "wait")
        parts = _parts(raw, taken, format, rate_hz, channels, on_note or _ignore)
        windows = _windows(raw, taken, parts, self.hop, on_note or _ignore)
        most = max(2, -(-raw.shape[0] // self.hop))
        self._windows: back_pressure.DropOldest | back_pressure.WaitForModel = (
            back_pressure.DropOldest(windows, most) if self.when_slow == "drop" else back_pressure.WaitForModel(windows)
        )
        shares = raw.kind == "audio" and sliding_windows.find_shareable_log_mel(model.manifest.preprocess) is not None
        self._sliding = sliding_windows.SlidingPreprocess(model.manifest.preprocess, raw.shape[0]) if shares else None
        self.frames = self._sliding.frames if self._sliding else None
        self.new_frames = self._sliding.frames - self._sliding.shared(self.hop) if self._sliding else None
        self._smooth = smoothing.make_smoother(model.manifest)
        self._told_dropped = 0
        self._answers = self._run()

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> StreamAnswer:
        return next(self._answers)

    @property
    def dropped(self) -> int:
        """Windows that were never answered, because the model was too slow for them."""
        return self._windows.dropped

    def close(self) -> None:
        """End it before the source does."""
        self._windows.close()
        self._answers.close()

    def _run(self) -> Generator[StreamAnswer, None, None]:
        try:
            for window in self._windows:
                yield self._answer(window)
        finally:
            self._windows.close()

    def _answer(self, window: Window) -> StreamAnswer:
        prediction, smoothed, error = None, None, None
        dropped = self.dropped
        if dropped > self._told_dropped:
            self._model.observers.dropped(dropped - self._told_dropped)
            self._told_dropped = dropped
        try:
            prediction = self._predict(window)
            smoothed = self._smooth(prediction) if self._smooth else None
        except InputError as refused:
            error = str(refused)
            self._model.observers.refused(refused)
            self._states = self._model.states()
        latency_ms = (perf_counter_ns() - window.arrived_ns) / 1e6
        return StreamAnswer(window.span, prediction, smoothed, latency_ms, dropped, error)

    def _predict(self, window: Window) -> Prediction:
        model, raw = self._model, window.raw
        started = perf_counter_ns()
        sample: np.ndarray | None
        if self._sliding is None:
            x, sample = model.prepare_with_sample(raw)
        else:
            model.check(raw)
            sample = self._sliding(raw, window.span.start)
            x = input_encoding.input_tensor(sample, model.manifest.input.layout, model.backend)
        prepared = perf_counter_ns()
        outputs = model.execute(x) if self._states is None else model.execute(x, self._states)
        timing_ms = {
            "wait": (started - window.arrived_ns) / 1e6,
            "preprocess": (prepared - started) / 1e6,
            "execute": (perf_counter_ns() - prepared) / 1e6,
        }
        return model.answer(raw, outputs, self._top_k, timing_ms, sample)


def _hop(raw: RawSpec, asked: int | None, has_states: bool) -> int:
    """What is asked for, else the declared stride, else half of a window; of a model with states, a whole one."""
    step = input_path.find_step(raw.steps, "windows")
    usual = int(step["stride"]) if step else raw.shape[0] if has_states else max(1, raw.shape[0] // 2)
    hop = usual if asked is None else _whole_number("hop", asked)
    if has_states and hop != usual:
        raise InputError(f"hop: got {hop}; the model has states, which go on every {usual}; leave it out")
    return hop


def _whole_number(name: str, value: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name}: got {value!r}; use a whole number from 1")
    return value


def _parts(
    raw: RawSpec, source: Source, format: str | None, rate_hz: int | None, channels: int | None, on_note: Note
) -> Iterator[np.ndarray]:
    """The stream's moments in parts; InputError at once for what can never fit the bundle."""
    if raw.kind == "audio":
        return audio.AudioDecoder(raw, audio.parse_stream_format(format, rate_hz, channels), on_note).parts(source)
    if raw.kind != "window":
        raise InputError(f"the stream: the bundle takes {raw.kind} {raw.dtype}{list(raw.shape)}, no sound and no rows")
    if rate_hz is not None or channels not in (None, raw.shape[1]):
        raise InputError(f"the stream: rows have no rate here, and {raw.shape[1]} channels; leave both out")
    rows.check(format, raw)
    return rows.parts(source, format, raw)


def _windows(raw: RawSpec, source: Source, parts: Iterator[np.ndarray], hop: int, on_note: Note) -> Iterator[Window]:
    """Every whole window, also where the stream ends with an InputError, which then comes last."""
    step = input_path.find_step(raw.steps, "windows")
    cutter = WindowCutter(raw.shape, hop, step["fill"] if step else "none", raw.sample_rate_hz)
    problem: InputError | None = None
    try:
        for part in parts:
            yield from cutter.push(part, source.arrived_ns)
    except InputError as error:
        problem = error
    yield from cutter.finish(source.arrived_ns)
    if problem is not None:
        raise problem
    what = "samples" if raw.kind == "audio" else "rows"
    if cutter.moments == 0:
        raise InputError("the stream: nothing came; see what the program before the pipe says")
    if cutter.number == 0:
        raise InputError(f"the stream ended after {cutter.moments} {what}; a window has {raw.shape[0]}")
    if cutter.left:
        on_note(f"the stream ended; its last {cutter.left} {what} fill no window")


def _ignore(text: str) -> None:
    pass
