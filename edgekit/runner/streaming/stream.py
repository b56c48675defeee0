"""A bundle's answers to a stream: one per window, with the same bits as for the same samples in a file."""

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
        """The part of an opened bundle that a stream uses."""

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
    """The answer to a window of a stream.

    `prediction` is the answer to the window alone, as for a file. If the window was refused, it is None, and `error`
    says why. `smoothed` is the answer smoothed over time, if the bundle declares it. `latency_ms` is the time from the
    arrival of the window's last sample to this answer. `dropped` counts the windows of the stream that were never
    answered.
    """

    span: Span
    prediction: Prediction | None
    smoothed: Prediction | None
    latency_ms: float
    dropped: int
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the answer for JSON."""
        fields: dict[str, Any] = {"window": self.span.to_dict(), "latency_ms": self.latency_ms, "dropped": self.dropped}
        if self.prediction is None:
            return {**fields, "error": self.error}
        if self.smoothed is not None:
            fields["smoothed"] = smoothing.to_json_dict(self.smoothed)
        return {**fields, **self.prediction.to_dict()}


class Stream:
    """Answers to the windows of a source, each as soon as the window is complete. Created by `Model.stream`.

    A model's recurrent states start from zeros and continue from window to window. After a refused window they start
    from zeros again.

    A window's log-mel spectrogram has `frames` frames, of which `new_frames` are computed; the others are those of the
    window before. Both are None if the bundle has no log-mel step whose frames windows can share.

    Parameters
    ----------
    source : binary file, or iterable of bytes or numpy.ndarray
        Arrays of sound are (samples,) or (samples, channels), those of sensors (rows, channels).
    format : str, optional
        The format of the bytes. None for arrays.
    hop : int, optional
        Distance between the starts of two windows, in samples or rows. By default the stride that the bundle
        declares, or half a window. A model with states accepts only the declared stride, or a whole
        window if none is declared.
    rate_hz : int, optional
        Sample rate of sound without a header. By default the bundle's.
    channels : int, optional
        Channels of sound without a header. By default one.
    top_k : int
        Number of classes that a classification lists.
    when_slow : {"drop", "wait"}, optional
        What happens if windows arrive faster than they are answered: "drop" drops the oldest waiting one, "wait"
        stops reading. By default, windows are dropped if the source is a pipe, a socket or a device. A model with
        states always waits.
    on_note : callable, optional
        Called with a line about anything that is not an error, such as samples at the end that fill no window.

    Raises
    ------
    InputError
        An option is invalid, or the stream can never match the bundle. Iterating raises it if the stream ended in the
        middle of a sample or changed its format, after the answers to everything that was complete.
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
        self.hop = window_hop(raw, hop, self._states is not None)
        _whole_number("top_k", top_k)
        opened = Source(source)
        if when_slow not in (None, *back_pressure.POLICIES):
            raise InputError(f"when_slow: got {when_slow!r}; use one of {', '.join(back_pressure.POLICIES)}")
        if self._states is not None and when_slow == "drop":
            raise InputError("when_slow: the model has states, which need every window; use wait")
        self.when_slow = when_slow or ("drop" if opened.is_live and self._states is None else "wait")
        windows = cut_windows(raw, opened, self.hop, format, rate_hz, channels, on_note or _ignore)
        max_waiting = max(2, -(-raw.shape[0] // self.hop))
        self._windows: back_pressure.DropOldest | back_pressure.WaitForModel = (
            back_pressure.DropOldest(windows, max_waiting)
            if self.when_slow == "drop"
            else back_pressure.WaitForModel(windows)
        )
        can_share_frames = (
            raw.kind == "audio" and sliding_windows.find_shareable_log_mel(model.manifest.preprocess) is not None
        )
        self._sliding = (
            sliding_windows.SlidingPreprocess(model.manifest.preprocess, raw.shape[0]) if can_share_frames else None
        )
        self.frames = self._sliding.frames if self._sliding else None
        self.new_frames = self._sliding.frames - self._sliding.shared(self.hop) if self._sliding else None
        self._smooth = smoothing.make_smoother(model.manifest)
        self._reported_dropped = 0
        self._answers = self._run()

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> StreamAnswer:
        return next(self._answers)

    @property
    def dropped(self) -> int:
        """Windows that were never answered, because the model was too slow."""
        return self._windows.dropped

    def close(self) -> None:
        """End the stream before its source ends."""
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
        if dropped > self._reported_dropped:
            self._model.observers.dropped(dropped - self._reported_dropped)
            self._reported_dropped = dropped
        try:
            prediction = self._predict(window)
            smoothed = self._smooth(prediction) if self._smooth else None
        except InputError as refusal:
            error = str(refusal)
            self._model.observers.refused(refusal)
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


def cut_windows(
    raw: RawSpec,
    source: Source,
    hop: int,
    format: str | None,
    rate_hz: int | None,
    channels: int | None,
    on_note: Note,
) -> Iterator[Window]:
    """Return the windows of a source; see `Stream` for the options.

    Raises InputError at once if the stream can never match the bundle, and after the last window if it ended in the
    middle of a sample or changed its format.
    """
    parts = _parts(raw, source, format, rate_hz, channels, on_note)
    return _windows(raw, source, parts, hop, on_note)


def window_hop(raw: RawSpec, requested: int | None, has_states: bool) -> int:
    """Return the requested hop, or the declared stride, or half a window (a whole one for a model with states)."""
    step = input_path.find_step(raw.steps, "windows")
    default_hop = int(step["stride"]) if step else raw.shape[0] if has_states else max(1, raw.shape[0] // 2)
    hop = default_hop if requested is None else _whole_number("hop", requested)
    if has_states and hop != default_hop:
        raise InputError(f"hop: got {hop}; the model has states, which advance every {default_hop}; leave it out")
    return hop


def _whole_number(name: str, value: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name}: got {value!r}; use a whole number from 1")
    return value


def _parts(
    raw: RawSpec, source: Source, format: str | None, rate_hz: int | None, channels: int | None, on_note: Note
) -> Iterator[np.ndarray]:
    """Return the stream's moments in parts. Raises InputError at once if the stream can never match the bundle."""
    if raw.kind == "audio":
        return audio.AudioDecoder(raw, audio.parse_stream_format(format, rate_hz, channels), on_note).parts(source)
    if raw.kind != "window":
        raise InputError(
            f"the stream: the bundle takes {raw.kind} {raw.dtype}{list(raw.shape)}, neither sound nor rows"
        )
    if rate_hz is not None or channels not in (None, raw.shape[1]):
        raise InputError(f"the stream: rows have no rate here, and {raw.shape[1]} channels; leave both out")
    rows.check(format, raw)
    return rows.parts(source, format, raw)


def _windows(raw: RawSpec, source: Source, parts: Iterator[np.ndarray], hop: int, on_note: Note) -> Iterator[Window]:
    """Yield every complete window, even if the stream ends with an InputError, which is then raised last."""
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
    unit = "samples" if raw.kind == "audio" else "rows"
    if cutter.moments == 0:
        raise InputError("the stream: nothing arrived; check the output of the program before the pipe")
    if cutter.number == 0:
        raise InputError(f"the stream ended after {cutter.moments} {unit}; a window has {raw.shape[0]}")
    if cutter.remaining:
        on_note(f"the stream ended; its last {cutter.remaining} {unit} do not fill a window")


def _ignore(text: str) -> None:
    pass
