"""`edgerun predict`: one answer for each file, for the files in folders, or for a stream."""

from __future__ import annotations

import argparse
import sys
from time import perf_counter_ns
from typing import TYPE_CHECKING

from edgekit.runner import extension
from edgekit.runner.commands import _shared, _stream
from edgekit.runner.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgekit.runner.commands._batches import Outcome
    from edgekit.runner.commands._coco import CocoResults
    from edgekit.runner.commands._draw import Drawings
    from edgekit.runner.model import FileAnswer, Model

HELP = (
    "run the model on pictures, sounds, tables, texts, arrays, folders of them, or a stream of frames, sound or sensors"
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    _shared.add_bundle_arguments(parser)
    parser.add_argument(
        "inputs", metavar="INPUT", nargs="*", help=".npy, .npz, .png, .jpg, .webp, .wav, .csv, .tsv, .txt, or a folder"
    )
    parser.add_argument("--top", metavar="K", type=_shared.positive, default=5, help="labels to show (default: 5)")
    parser.add_argument(
        "--strict",
        action="store_true",
        help="refuse inputs that would have to be turned, resized, mixed, resampled or cut",
    )
    parser.add_argument(
        "--batch",
        metavar="N",
        type=_shared.positive,
        help="run N samples in each call, for throughput; timing_ms.execute is then the call's time "
        "divided by its samples",
    )
    parser.add_argument(
        "--draw",
        metavar="OUT",
        help="draw the answers into the pictures, as PNG: a file, or a folder for several (boxes, masks)",
    )
    parser.add_argument(
        "--coco",
        metavar="FILE",
        help="also write the boxes of all pictures as COCO results: image_id is the file's name without its ending "
        "if that is a whole number, else the file's name; category_id is the label's position, from 1",
    )
    _stream.add_arguments(parser)
    extension.find().add_predict_options(parser)
    _shared.add_interpreter_arguments(parser)
    parser.set_defaults(misuse=parser.error)


def run(options: argparse.Namespace) -> None:
    """Print one answer per input."""
    _stream.check(options)
    device = extension.find()
    device.check_predict_options(options)
    if options.draw is not None:
        from edgekit.runner.commands import _draw

        _draw.check(options)
    if options.coco is not None:
        from edgekit.runner.commands import _coco

        _coco.check(options)
    if not options.stream and not options.inputs:
        options.misuse("name at least one INPUT; or use --stream for data from standard input")
    with device.loading(options) as load_options:
        model = _shared.load(options, **load_options)
        if options.batch and model.manifest.states and not options.stream:
            options.misuse("--batch: the model has states, so it takes one sample at a time; leave --batch out")
        with device.observing(model, options):
            if options.stream:
                _stream.run(model, options)
            else:
                _files(model, options)


def _files(model: Model, options: argparse.Namespace) -> None:
    """Answer files. A bad file does not stop the others; the exit code reports it."""
    from edgekit.runner import inputs

    raw = model.manifest.raw
    paths = [path for name in options.inputs for path in inputs.input_files(name, raw)]
    drawings, results = _drawings(model, options, paths), _results(model, options, paths)
    refused, cut = 0, []
    for path, answer, read_ms, error in _outcomes(model, paths, options):
        drawn = None
        if answer is not None:
            try:
                drawn = drawings.file(path, answer.prediction) if drawings else None
            except InputError as drawing_error:
                error = drawing_error
            _shared.print_answer(path, answer.prediction, read_ms, options.json, answer.span, drawn=drawn)
            if results is not None:
                results.add(path, answer.prediction)
            if answer.span is not None and "cut" in answer.span.facts():
                cut.append(f"{path}, {answer.span}")
            if error is None:
                continue
        text = str(error) if str(error).startswith(path) else f"{path}: {error}"
        if len(paths) == 1:
            if options.json:
                _shared.print_json({"input": path, "error": text})
            raise InputError(text) from None
        _complain(path, text, options.json)
        refused += 1
    if results is not None:
        results.write()
    if cut:
        others = f"; the same happened to {len(cut) - 1} more" if len(cut) > 1 else ""
        _shared.warn(f"{cut[0]}: the bundle takes no more, so the rest was cut off{others}")
    if refused:
        raise InputError(f"{refused} of {len(paths)} inputs got no answer{' or no picture' if drawings else ''}")


def _drawings(model: Model, options: argparse.Namespace, paths: list[str]) -> Drawings | None:
    if options.draw is None:
        return None
    from edgekit.runner.commands import _draw

    return _draw.Drawings(model.manifest, options.draw, paths)


def _results(model: Model, options: argparse.Namespace, paths: list[str]) -> CocoResults | None:
    if options.coco is None:
        return None
    from edgekit.runner.commands import _coco

    return _coco.CocoResults(model.manifest, options.coco, paths)


def _outcomes(model: Model, paths: list[str], options: argparse.Namespace) -> Iterator[Outcome]:
    if options.batch:
        from edgekit.runner.commands import _batches

        yield from _batches.batched_answers(model, paths, options.batch, options.top, options.strict)
        return
    for path in paths:
        try:
            for answer, read_ms in _with_read_times(model.predict_file(path, top_k=options.top, strict=options.strict)):
                yield path, answer, read_ms, None
        except InputError as error:
            yield path, None, 0.0, error


def _with_read_times(answers: Iterator[FileAnswer]) -> Iterator[tuple[FileAnswer, float]]:
    """Yield each answer with the time that its sample took to read, in ms: the time that was not spent in the model."""
    started = perf_counter_ns()
    for answer in answers:
        total_ms = (perf_counter_ns() - started) / 1e6
        yield answer, max(0.0, total_ms - sum(answer.prediction.timing_ms.values()))
        started = perf_counter_ns()


def _complain(path: str, text: str, as_json: bool) -> None:
    print(f"edgerun: {text}", file=sys.stderr, flush=True)
    if as_json:
        _shared.print_json({"input": path, "error": text})
        sys.stdout.flush()
