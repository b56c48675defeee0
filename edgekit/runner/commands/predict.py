"""`edgerun predict`: files, folders or a stream of frames in, one answer each out."""

from __future__ import annotations

import argparse
import os
import sys
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from edgekit.runner.commands import _shared
from edgekit.runner.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgekit.runner.commands._batches import Outcome
    from edgekit.runner.inputs.windows import Span
    from edgekit.runner.model import FileAnswer, Model

HELP = "answer for pictures, sounds, tables, texts, .npy files, folders of them, or frames from a pipe"
PIXELS = ("rgb24", "bgr24", "gray", "yuv420p")
LARGEST_SIDE = 16384


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    _shared.bundle(parser)
    parser.add_argument(
        "inputs", metavar="INPUT", nargs="*", help=".npy, .png, .jpg, .webp, .wav, .csv, .txt, or a folder"
    )
    parser.add_argument("--top", metavar="K", type=_shared.positive, default=5, help="labels to show (default: 5)")
    parser.add_argument(
        "--strict",
        action="store_true",
        help="refuse what must be turned, resized, mixed, resampled or cut",
    )
    parser.add_argument(
        "--batch",
        metavar="N",
        type=_shared.positive,
        help="run N samples a call, for throughput; timing_ms.execute is then the call's time divided by its samples",
    )
    stream = parser.add_argument_group("frames from a pipe, in place of INPUT")
    stream.add_argument("--stream", choices=PIXELS, help="raw frames on standard input, in ffmpeg's pixel format")
    stream.add_argument(
        "--size", metavar="WxH", type=_size, help="their size in pixels, e.g. 640x480 (rpicam-vid: W a multiple of 64)"
    )
    stream.add_argument("--frames", metavar="N", type=_shared.positive, help="stop after N of them")
    _shared.interpreter(parser)
    parser.set_defaults(misuse=parser.error)


def run(options: argparse.Namespace) -> None:
    """One answer an input."""
    if options.stream:
        if options.inputs or not options.size or options.strict or options.batch:
            options.misuse("--stream wants --size WxH, and neither INPUT nor --strict nor --batch beside it")
        _stream(_shared.load(options), options)
        return
    if not options.inputs or options.size or options.frames:
        options.misuse("name at least one INPUT; or --stream with --size for frames on standard input")
    _files(_shared.load(options), options)


def _files(model: Model, options: argparse.Namespace) -> None:
    """A bad file does not keep the others from their answers; the exit code tells of it."""
    from edgekit.runner import inputs

    raw = model.manifest.raw
    paths = [path for name in options.inputs for path in inputs.files(name, raw)]
    refused = 0
    for path, answer, read_ms, error in _outcomes(model, paths, options):
        if answer is not None:
            _answer(path, answer.prediction, read_ms, options.json, answer.span)
            continue
        text = str(error) if str(error).startswith(path) else f"{path}: {error}"
        if len(paths) == 1:
            if options.json:
                _shared.print_json({"input": path, "error": text})
            raise InputError(text) from None
        _complain(path, text, options.json)
        refused += 1
    if refused:
        raise InputError(f"{refused} of {len(paths)} inputs got no answer")


def _outcomes(model: Model, paths: list[str], options: argparse.Namespace) -> Iterator[Outcome]:
    if options.batch:
        from edgekit.runner.commands import _batches

        yield from _batches.answers(model, paths, options.batch, options.top, options.strict)
        return
    for path in paths:
        try:
            for answer, read_ms in _timed(model.predict_file(path, top_k=options.top, strict=options.strict)):
                yield path, answer, read_ms, None
        except InputError as error:
            yield path, None, 0.0, error


def _timed(answers: Iterator[FileAnswer]) -> Iterator[tuple[FileAnswer, float]]:
    """Each answer with the milliseconds that its sample took to read: what was not spent in the model."""
    started = perf_counter_ns()
    for answer in answers:
        whole_ms = (perf_counter_ns() - started) / 1e6
        yield answer, max(0.0, whole_ms - sum(answer.prediction.timing_ms.values()))
        started = perf_counter_ns()


def _stream(model: Model, options: argparse.Namespace) -> None:
    from itertools import islice

    from edgekit.runner.inputs import stream

    if sys.stdin is None or sys.stdin.isatty():
        raise InputError("--stream: nothing is piped in; e.g. ffmpeg -i FILE -f rawvideo -pix_fmt rgb24 - | edgerun …")
    width, height = options.size
    os.set_blocking(0, True)  # a pipe that says "nothing yet" must not look like one that has ended
    with open(0, "rb", buffering=0, closefd=False) as source:  # unbuffered: each frame goes straight where it belongs
        frames = stream.frames(source, options.stream, width, height, model.manifest.raw)
        for number, (sample, read_ms) in enumerate(islice(frames, options.frames)):
            _answer(number, model.predict(sample, top_k=options.top), read_ms, options.json)


def _answer(name: Any, found: Any, read_ms: float, as_json: bool, span: Span | None = None) -> None:
    """Flushed at once: whoever reads the pipe waits for this line."""
    if as_json:
        facts = found.to_dict()
        window = {"window": span.to_dict()} if span else {}
        _shared.print_json({"input": name, **window, **facts, "timing_ms": {"read": read_ms, **facts["timing_ms"]}})
        sys.stdout.flush()
        return
    first, *rest = found.lines()
    where = f"frame {name}" if isinstance(name, int) else f"{name}, {span}" if span else name
    print("\n".join([f"{where}: {first}".rstrip(), *rest]), flush=True)


def _complain(path: str, text: str, as_json: bool) -> None:
    print(f"edgerun: {text}", file=sys.stderr, flush=True)
    if as_json:
        _shared.print_json({"input": path, "error": text})
        sys.stdout.flush()


def _size(text: str) -> tuple[int, int]:
    sides = [int(side) if side.isdigit() else 0 for side in text.lower().split("x")]
    if len(sides) != 2 or not all(0 < side <= LARGEST_SIDE for side in sides):
        raise argparse.ArgumentTypeError(f"got {text}; use width x height, such as 640x480")
    return sides[0], sides[1]
