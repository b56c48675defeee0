"""What the commands share: the arguments that several take, and JSON on standard output."""

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
    """The bundle, and whether the answer is JSON."""
    parser.add_argument("bundle", metavar="BUNDLE", help="a file that ends in .edge.zip")
    add_json_argument(parser)


def add_json_argument(parser: argparse.ArgumentParser) -> None:
    """Whether the answer is JSON."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_interpreter_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the model runs. Options that are not given are measured once, and the result is cached."""
    parser.add_argument(
        "--interpreter", metavar="NAME", type=interpreter_name, help="one of those installed (default: the fastest)"
    )
    parser.add_argument(
        "--threads", metavar="N", type=thread_count, help="threads of the interpreter (default: measured)"
    )
    parser.add_argument("--device", metavar="NAME", help="OpenVINO's device: CPU, GPU or NPU (default: CPU)")
    parser.add_argument(
        "--no-trial", action="store_true", help="measure nothing first: the usual interpreter, 1 thread"
    )


def load(options: argparse.Namespace, **more: Any) -> Model:
    """The model that the arguments of `interpreter` ask for; `more` goes to `edgekit.runner.load`."""
    from edgekit.runner.loader import load
    from edgekit.runner.native_stderr import quiet_native

    with quiet_native() as stderr:  # LiteRT reports to every user that it made a delegate

        def print_progress(text: str, lasting: bool) -> None:
            if lasting or os.isatty(stderr):  # lines that only pass the time are for a person who waits
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
    """One line on standard error that is no error. Fits `on_progress`."""
    print(f"edgerun: {text}", file=sys.stderr)


def non_negative(text: str) -> int:
    """An argument that is a whole number from 0."""
    value = int(text) if text.isdecimal() else -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"got {text}; use a whole number from 0")
    return value


def positive(text: str) -> int:
    """An argument that is a whole number from 1."""
    value = int(text) if text.isdecimal() else 0
    if value == 0:
        raise argparse.ArgumentTypeError(f"got {text}; use a whole number from 1")
    return value


def thread_count(text: str) -> int:
    """An argument that is a number of threads that an interpreter may be given."""
    from edgekit.runner.backends import MOST_THREADS

    value = positive(text)
    if value > MOST_THREADS:
        raise argparse.ArgumentTypeError(f"got {text}; use a whole number from 1 to {MOST_THREADS}")
    return value


def interpreter_name(text: str) -> str:
    """An argument that is an interpreter's name, whether or not it is installed and runs this bundle."""
    from edgekit.runner.backends import INTERPRETERS

    if text not in INTERPRETERS:
        raise argparse.ArgumentTypeError(f"got {text}; use one of {', '.join(INTERPRETERS)}")
    return text


def print_json(value: Any) -> None:
    """One line of JSON."""
    print(json.dumps(value, sort_keys=True, allow_nan=False))


def print_answer(
    name: Any,
    found: Any,
    read_ms: float,
    as_json: bool,
    span: Location | None = None,
    smoothed: Any = None,
    drawn: str | None = None,
) -> None:
    """Flushed at once: whoever reads the pipe waits for this line."""
    if as_json:
        facts = found.to_dict()
        more: dict[str, Any] = span.facts() if span else {}
        if drawn is not None:
            more["drawn"] = drawn
        if smoothed is not None:
            from edgekit.runner import smoothing

            more["smoothed"] = smoothing.to_json_dict(smoothed)
        print_json({"input": name, **more, **facts, "timing_ms": {"read": read_ms, **facts["timing_ms"]}})
        sys.stdout.flush()
        return
    first, *rest = answer_lines(found, smoothed)
    where = f"frame {name}" if isinstance(name, int) else f"{name}, {span}" if span else name
    if drawn is not None:
        rest.append(f"  drawn into {drawn}")
    print("\n".join([f"{where}: {first}".rstrip(), *rest]), flush=True)


def answer_lines(found: Any, smoothed: Any = None) -> list[str]:
    """An answer for people, that over time where there is one; the first line ends the one that names the input."""
    if smoothed is None:
        made: list[str] = found.lines()
        return made
    alone = found.lines()[0]
    first, *rest = smoothed.lines()
    return [first if first == alone else f"{first} (this alone: {alone})", *rest]
