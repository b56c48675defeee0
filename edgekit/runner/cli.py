"""`edgerun.pyz`: verify, info, selftest, predict and bench a bundle on the device."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit import __version__
from edgekit.runner.errors import InputError, RunnerError, SelftestError

if TYPE_CHECKING:
    from edgekit.runner.model import Model

INTERRUPTED = 130
BROKEN_PIPE = 141
ROUNDS = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 done, 2 misspelt command, 4 bundle or input, 5 interpreter or selftest, 8 trust, 130 Ctrl-C."""
    options = _parser().parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # labels may hold letters that the terminal's encoding lacks
            stream.reconfigure(errors="backslashreplace")
    try:
        options.command(options)
        sys.stdout.flush()
    except RunnerError as error:
        print(f"edgerun: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("edgerun: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader has gone; keep Python from complaining about it at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="edgerun", description="Run an edgekit bundle on this device.")
    parser.add_argument("--version", action="version", version=f"edgerun {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _command(commands, _verify, "check every member of a bundle against its manifest")
    _command(commands, _info, "say what a bundle holds and what it needs")
    _with_model(_command(commands, _selftest, "run the golden vectors and compare the scores"))
    predict = _with_model(_command(commands, _predict, "classify .npy, PNG or JPEG files"))
    predict.add_argument("inputs", metavar="INPUT", nargs="+", type=Path)
    predict.add_argument("--top", metavar="K", type=_positive, default=5, help="labels to show (default: 5)")
    bench = _with_model(_command(commands, _bench, "time the model on this device"))
    bench.add_argument("--calls", metavar="N", type=_positive, default=1000, help="timed calls (default: 1000)")
    bench.add_argument("--warmup", metavar="N", type=_count, default=20, help="untimed calls a round (default: 20)")
    return parser


def _command(commands: Any, run: Any, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(run.__name__[1:], help=text, description=text)
    parser.set_defaults(command=run)
    parser.add_argument("bundle", metavar="BUNDLE", type=Path)
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _with_model(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("--threads", metavar="N", type=_positive, default=1, help="threads of the interpreter")
    parser.add_argument("--interpreter", metavar="NAME", help="litert, tflite_runtime, openvino or onnxruntime")
    return parser


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"got {text}; use a whole number from 0")
    return value


def _positive(text: str) -> int:
    value = _count(text)
    if value == 0:
        raise argparse.ArgumentTypeError("got 0; use a whole number from 1")
    return value


def _load(options: argparse.Namespace) -> Model:
    from edgekit.runner.model import load

    return load(options.bundle, threads=options.threads, interpreter=options.interpreter)


def _verify(options: argparse.Namespace) -> None:
    from edgekit.runner import bundle

    found = bundle.read(options.bundle)
    if options.json:
        _print_json({"bundle": str(options.bundle), "sha256": found.sha256, "members": found.manifest.members})
        return
    for name, facts in sorted(found.manifest.members.items()):
        print(f"{name:<28} {facts['bytes']:>10,} bytes  ok")
    print(f"sha256 {found.sha256}")


def _info(options: argparse.Namespace) -> None:
    from edgekit.runner import bundle, manifest

    found = bundle.read(options.bundle)
    facts = found.manifest
    if options.json:
        sys.stdout.write(manifest.to_json(facts).decode())
        return
    size = sum(len(data) for data in found.model_files().values())
    rows = {
        "bundle": f"{facts.name} {facts.version} ({facts.variant})",
        "target": facts.target,
        "model": f"{', '.join(facts.model_files)}, {size:,} bytes",
        "takes": f"{facts.raw.kind} {facts.raw.dtype}{list(facts.raw.shape)}",
        "preprocess": ", ".join(step["step"] for step in facts.preprocess) or "none",
        "labels": _shorten(facts.labels),
        "needs": ", ".join(facts.requirements) or "nothing recorded",
    }
    for word, value in rows.items():
        print(f"{word:<11} {value}")


def _selftest(options: argparse.Namespace) -> None:
    report = _load(options).selftest()
    if options.json:
        _print_json(report.to_dict())
    else:
        print(f"interpreter {report.interpreter} {report.version}")
        print(f"max |Δ|     {report.max_abs_delta:.3g} (allowed {report.atol:.3g})")
        print(f"agreement   {report.top1_agreement:.1%} of {report.vectors} golden vectors")
        print("selftest    " + ("passed" if report.ok else "FAILED"))
    if not report.ok:
        raise SelftestError(
            f"{options.bundle}: the golden vectors did not come out as recorded on {report.interpreter} "
            f"{report.version}; use another interpreter or version, and trust no prediction until it passes"
        )


def _predict(options: argparse.Namespace) -> None:
    from edgekit.runner import decode

    model = _load(options)
    for path in options.inputs:
        try:
            found = model.predict(decode.read(path, model.manifest.raw), top_k=options.top)
        except InputError as error:
            text = str(error)
            raise InputError(text if text.startswith(str(path)) else f"{path}: {text}") from None
        if options.json:
            fields = {name: value for name, value in vars(found).items() if name != "scores"}
            _print_json({"input": str(path), **fields, "scores": found.scores.tolist()})
            continue
        print(f"{path}: {found.label}")
        for label, probability in found.top:
            print(f"  {probability:7.2%}  {label}")


def _bench(options: argparse.Namespace) -> None:
    from edgekit.runner import bench

    model = _load(options)
    raw = model.golden()[0][0]
    x = model.prepare(raw)
    rounds = min(ROUNDS, options.calls)
    calls = {"execute": lambda: model.backend.run(x), "predict": lambda: model.predict(raw)}
    samples = bench.interleaved(calls, rounds, -(-options.calls // rounds), options.warmup)
    figures = {name: bench.summary(taken) for name, taken in samples.items()}
    if options.json:
        facts = {"bundle": str(options.bundle), "sha256": model.sha256, "threads": options.threads}
        interpreter = {"interpreter": model.backend.name, "version": model.backend.version}
        _print_json({**facts, **interpreter, "machine": bench.machine(), **figures})
        return
    machine = bench.machine()
    print(f"{model.backend.name} {model.backend.version}, threads: {options.threads}")
    print(f"on {machine['host']} ({machine['cpu']}), Python {machine['python']}")
    columns = ("p50_ms", "p90_ms", "p95_ms", "p99_ms", "throughput_per_s")
    print(f"{'':<8}" + "".join(f"{name:>18}" for name in columns))
    for name, row in figures.items():
        print(f"{name:<8}" + "".join(f"{row[column]:>18,.{4 if column.endswith('_ms') else 1}f}" for column in columns))


def _shorten(labels: list[str], most: int = 12) -> str:
    shown = ", ".join(labels[:most])
    return shown if len(labels) <= most else f"{shown}, … ({len(labels)} in all)"


def _print_json(value: Any) -> None:
    print(json.dumps(value, sort_keys=True, allow_nan=False))
