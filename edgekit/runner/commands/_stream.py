"""`predict --stream`: camera frames, sound or rows of sensor values on standard input, with one answer each."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from time import monotonic
from typing import IO, TYPE_CHECKING, Any

from edgekit.runner.commands import _shared
from edgekit.runner.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from edgekit.runner.commands._draw import Drawings
    from edgekit.runner.model import Model
    from edgekit.runner.streaming.stream import Stream, StreamAnswer

PIXELS = ("rgb24", "bgr24", "gray", "yuv420p")
LARGEST_SIDE = 16384
SOUND = ("s16le", "s24le", "s32le", "f32le", "u8", "S16_LE", "S24_3LE", "S32_LE", "FLOAT_LE", "U8", "wav")
ROWS = ("csv", "f32le", "FLOAT_LE", "s16le", "S16_LE")
FORMATS = (*PIXELS, *SOUND, "csv")
REPORT_DROPPED_EVERY_S = 5.0
"""Minimum time between two lines about dropped windows."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of a stream."""
    stream = parser.add_argument_group("a stream on standard input, in place of INPUT")
    stream.add_argument(
        "--stream",
        metavar="FORMAT",
        choices=FORMATS,
        help=f"raw frames ({', '.join(PIXELS)}), sound ({', '.join(SOUND)}), or rows of sensors ({', '.join(ROWS)}); "
        "the names are ffmpeg's and arecord's",
    )
    stream.add_argument(
        "--size",
        metavar="WxH",
        type=size,
        help="size of the frames in pixels, such as 640x480 (with rpicam-vid, W must be a multiple of 64)",
    )
    stream.add_argument("--frames", metavar="N", type=_shared.positive, help="stop after N frames or windows")
    stream.add_argument(
        "--hop",
        metavar="N",
        type=_shared.positive,
        help="samples or rows between the starts of windows (default: the stride in the bundle, else half a window)",
    )
    stream.add_argument(
        "--rate",
        metavar="HZ",
        type=_shared.positive,
        help="sample rate of sound without a header (default: the bundle's)",
    )
    stream.add_argument(
        "--channels", metavar="N", type=_shared.positive, help="channels of sound without a header (default: 1)"
    )
    stream.add_argument(
        "--when-slow",
        choices=("drop", "wait"),
        help="if windows come faster than answers: drop the oldest waiting one, or stop reading (default: "
        "drop from a pipe, wait for a file)",
    )


def check(options: argparse.Namespace) -> None:
    """Exit with code 2 if options contradict each other."""
    window_options = options.hop or options.rate or options.channels or options.when_slow
    if not options.stream:
        if options.size or options.frames or window_options:
            options.misuse("--size, --frames, --hop, --rate, --channels and --when-slow apply only with --stream")
        return
    if options.inputs or options.strict or options.batch:
        options.misuse("--stream cannot be combined with INPUT, --strict or --batch")
    if options.stream in PIXELS and (not options.size or window_options):
        options.misuse(
            "frames need --size WxH; --hop, --rate, --channels and --when-slow apply only to sound and sensors"
        )
    if options.stream not in PIXELS and (options.size or options.draw is not None):
        options.misuse("--size and --draw apply only to frames")


def run(model: Model, options: argparse.Namespace) -> None:
    """Answer each frame or window."""
    if sys.stdin is None or sys.stdin.isatty():
        what = "-f rawvideo -pix_fmt rgb24" if options.stream in PIXELS else "-f s16le -ac 1 -ar 16000"
        raise InputError(f"--stream: nothing is piped in; e.g. ffmpeg -i FILE {what} - | edgerun …")
    if hasattr(os, "set_blocking"):  # not on Windows before Python 3.12
        os.set_blocking(0, True)  # a non-blocking pipe without data would look as if it had ended
    if options.stream in PIXELS:
        _frames(model, options)
    else:
        _windows(model, options)


@contextmanager
def _stdin() -> Iterator[IO[bytes]]:
    """Open standard input unbuffered, so that frames need no copy and samples are available as soon as they arrive."""
    with open(0, "rb", buffering=0, closefd=False) as source:
        yield source


def _frames(model: Model, options: argparse.Namespace) -> None:
    from edgekit.runner import smoothing
    from edgekit.runner.inputs import raw_frames

    width, height = options.size
    drawings: Drawings | None = None
    last_frame: list[np.ndarray] = []
    if options.draw is not None:
        from edgekit.runner.commands import _draw

        drawings = _draw.Drawings(model.manifest, options.draw)
    with _stdin() as source:
        frames = raw_frames.frames(
            source, options.stream, width, height, model.manifest.raw, last_frame.append if drawings else None
        )
        smooth, states = smoothing.make_smoother(model.manifest), model.states()
        for number, (sample, read_ms) in enumerate(islice(frames, options.frames)):
            prediction = model.predict(sample, options.top, options.size, states)
            over_time = smooth(prediction) if smooth else None
            drawn = drawings.frame(number, last_frame[-1], sample, prediction) if drawings else None
            last_frame.clear()
            _shared.print_answer(number, prediction, read_ms, options.json, smoothed=over_time, drawn=drawn)


def _windows(model: Model, options: argparse.Namespace) -> None:
    """Answer windows. A refused window does not stop the others; the exit code reports it."""
    with _stdin() as source:
        stream = model.stream(
            source,
            options.stream,
            hop=options.hop,
            rate_hz=options.rate,
            channels=options.channels,
            top_k=options.top,
            when_slow=options.when_slow,
            on_note=_shared.warn,
        )
        _shared.warn(_describe_windows(model, stream))
        answered = refused = 0
        reported = 0, monotonic() - REPORT_DROPPED_EVERY_S
        try:
            for number, answer in enumerate(islice(stream, options.frames)):
                reported = _report_dropped(answer.dropped, *reported)
                _print(number, answer, options.json)
                answered += 1
                refused += answer.error is not None
        finally:
            stream.close()
            if stream.dropped > reported[0]:
                _shared.warn(f"{stream.dropped} windows were dropped")
    if refused:
        raise InputError(f"{refused} of {answered} windows got no answer")


def _describe_windows(model: Model, stream: Stream) -> str:
    """Describe how the stream is cut, and how much of a spectrogram is new in each window."""
    raw = model.manifest.raw
    what = "samples" if raw.kind == "audio" else "rows"
    text = f"windows of {raw.shape[0]} {what}, one every {stream.hop}"
    if stream.frames is None:
        return text
    if stream.new_frames == stream.frames:
        return (
            f"{text}; log-mel is computed anew for each, because the hop is not a multiple of its hop_samples, or is "
            "too long"
        )
    return f"{text}; log-mel: {stream.new_frames} of {stream.frames} frames are new in each"


def _report_dropped(dropped: int, reported: int, reported_s: float) -> tuple[int, float]:
    """Report newly dropped windows every few seconds. Returns the reported number and the time of the report."""
    now = monotonic()
    if dropped == reported or now - reported_s < REPORT_DROPPED_EVERY_S:
        return reported, reported_s
    _shared.warn(
        f"{dropped} windows dropped so far: they come faster than answers; use a longer --hop, or for a recording "
        "--when-slow wait"
    )
    return dropped, now


def _print(number: int, answer: StreamAnswer, as_json: bool) -> None:
    """Print an answer and flush, because a reader of the pipe waits for this line."""
    if answer.error is not None:
        _shared.warn(f"{answer.span}: {answer.error}")
    if as_json:
        _shared.print_json({"input": number, **answer.to_dict()})
        sys.stdout.flush()
        return
    if answer.prediction is not None:
        first, *rest = _shared.answer_lines(answer.prediction, answer.smoothed)
        print("\n".join([f"{answer.span}: {first}".rstrip(), *rest]), flush=True)


def size(text: str) -> Any:
    """Parse the width and height of a picture, such as 640x480."""
    sides = [int(side) if side.isdigit() else 0 for side in text.lower().split("x")]
    if len(sides) != 2 or not all(0 < side <= LARGEST_SIDE for side in sides):
        raise argparse.ArgumentTypeError(f"got {text}; use width x height, such as 640x480")
    return sides[0], sides[1]
