"""Code that commands share: common arguments, and JSON on standard output."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.runner.inputs.windows import Location
    from edgekit.runner.model import Model


def add_bundle_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the bundle, and the choice of JSON output."""
    parser.add_argument("bundle", metavar="BUNDLE", help="a file that ends in .edge.zip")
    add_json_argument(parser)


def add_json_argument(parser: argparse.ArgumentParser) -> None:
    """Add the choice of JSON output."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_interpreter_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for where the model runs. Their default values are measured once and cached."""
    parser.add_argument(
        "--interpreter",
        metavar="NAME",
        type=interpreter_name,
        help="one of the installed interpreters (default: the fastest)",
    )
    parser.add_argument(
        "--threads", metavar="N", type=thread_count, help="threads of the interpreter (default: measured)"
    )
    parser.add_argument("--device", metavar="NAME", help="OpenVINO's device: CPU, GPU or NPU (default: CPU)")
    parser.add_argument(
        "--no-trial", action="store_true", help="measure nothing first; use the standard interpreter and 1 thread"
    )


def load(options: argparse.Namespace, **more: Any) -> Model:
    """Open the model that the arguments of `add_interpreter_arguments` ask for.

    `more` is passed to `edgekit.runner.load`.
    """
    from edgekit.runner.loader import load
    from edgekit.runner.native_stderr import quiet_native

    with quiet_native() as stderr:  # LiteRT announces its delegate to every user

        def print_progress(text: str, lasting: bool) -> None:
            if lasting or os.isatty(stderr):  # progress lines are only for a person who waits
                os.write(stderr, f"edgerun: {text}\n".encode())

        return load(
            options.bundle,
            threads=options.threads,
            interpreter=options.interpreter,
            device=options.device,
            trial=not options.no_trial,
            on_progress=print_progress,
            **more,
        )


def warn(text: str, lasting: bool = True) -> None:
    """Print a line that is not an error to standard error. It can serve as `on_progress`."""
    print(f"edgerun: {text}", file=sys.stderr)


def non_negative(text: str) -> int:
    """Parse an argument that is a whole number from 0."""
    value = int(text) if text.isdecimal() else -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"got {text}; use a whole number from 0")
    return value


def positive(text: str) -> int:
    """Parse an argument that is a whole number from 1."""
    value = int(text) if text.isdecimal() else 0
    if value == 0:
        raise argparse.ArgumentTypeError(f"got {text}; use a whole number from 1")
    return value


def thread_count(text: str) -> int:
    """Parse an argument that is a valid number of threads."""
    from edgekit.runner.backends import MOST_THREADS

    value = positive(text)
    if value > MOST_THREADS:
        raise argparse.ArgumentTypeError(f"got {text}; use a whole number from 1 to {MOST_THREADS}")
    return value


def interpreter_name(text: str) -> str:
    """Parse an argument that is the name of an interpreter, installed or not."""
    from edgekit.runner.backends import INTERPRETERS

    if text not in INTERPRETERS:
        raise argparse.ArgumentTypeError(f"got {text}; use one of {', '.join(INTERPRETERS)}")
    return text


def print_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    print(json.dumps(value, sort_keys=True, allow_nan=False))


def print_answer(
    name: Any,
    answer: Any,
    read_ms: float,
    as_json: bool,
    span: Location | None = None,
    smoothed: Any = None,
    drawn: str | None = None,
) -> None:
    """Print an answer and flush, because a reader of the pipe waits for this line."""
    if as_json:
        fields = answer.to_dict()
        extra: dict[str, Any] = span.facts() if span else {}
        if drawn is not None:
            extra["drawn"] = drawn
        if smoothed is not None:
            from edgekit.runner import smoothing

            extra["smoothed"] = smoothing.to_json_dict(smoothed)
        print_json({"input": name, **extra, **fields, "timing_ms": {"read": read_ms, **fields["timing_ms"]}})
        sys.stdout.flush()
        return
    first, *rest = answer_lines(answer, smoothed)
    heading = f"frame {name}" if isinstance(name, int) else f"{name}, {span}" if span else name
    if drawn is not None:
        rest.append(f"  drawn into {drawn}")
    print("\n".join([f"{heading}: {first}".rstrip(), *rest]), flush=True)


def answer_lines(answer: Any, smoothed: Any = None) -> list[str]:
    """Return an answer as lines of text. The first line is appended to the name of the input.

    If there is a smoothed answer, its lines are returned. If the answer to this window alone differs, the first line
    shows it as well.
    """
    if smoothed is None:
        lines: list[str] = answer.lines()
        return lines
    unsmoothed = answer.lines()[0]
    first, *rest = smoothed.lines()
    return [first if first == unsmoothed else f"{first} (this alone: {unsmoothed})", *rest]
