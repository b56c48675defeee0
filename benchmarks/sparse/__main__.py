"""What zeros are worth to each interpreter: bytes, memory, time and the bits of answers, on a MobileNet-like network.

    python -m benchmarks.sparse --make [--alpha 0.5] [--size 64]
    python -m benchmarks.sparse [--rounds 15]

The first makes the files and says what they are, the second times them. Only the 1x1 convolutions are zeroed: at
random, in blocks of four neighbouring inputs (1x4), or two of every four (2:4). Each interpreter has one thread. Files
take turns round by round. `times as long` is against the same kind of file without zeros, with its interval of 95 %.
Memory is what a fresh process grows by when it opens a file and calls it.

All of it lies in `build/sparse/probe/`, the table in `probe.md`; another network needs another folder, by `--out`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.sparse import files
from benchmarks.sparse.files import DENSE, PATTERNS, folder_of
from edgekit.core.errors import ConfigError, EdgekitError
from edgekit.core.hashing import write_json
from edgekit.runner.errors import RunnerError
from edgekit.runner.measure.bench import interleaved, machine
from edgekit.runner.measure.intervals import ratio

HOME = Path(__file__).resolve().parents[2] / "build" / "sparse" / "probe"
FACTS = "facts.json"
CONFIDENCE = 0.95
CALLS, WARMUP = 20, 5
WEIGHED = (DENSE, "80 %")
"""Patterns of which memory is looked at: it hardly depends on them."""
KINDS = {
    "LiteRT fp32": ("fp32.tflite", "tflite"),
    "LiteRT fp32, sparse": ("fp32.sparse.tflite", "tflite"),
    "LiteRT int8": ("int8.tflite", "tflite"),
    "LiteRT int8, sparse": ("int8.sparse.tflite", "tflite"),
    "ONNX Runtime fp32": ("fp32.onnx", "onnx"),
    "ONNX Runtime fp32, sparse": ("fp32.sparse.onnx", "onnx"),
    "OpenVINO fp32": ("fp32.xml", "xml"),
    "OpenVINO int8": ("int8.xml", "xml"),
}
HEAD = ("file", "zeros", "kB", "zipped, kB", "memory, MB", "p50, ms", "times as long", "answers")


@dataclass(frozen=True)
class Fact:
    """What a file is, besides its time: `memory_kb` is what it adds to a process, `answers` how they compare."""

    kind: str
    pattern: str
    size_bytes: int
    zipped_bytes: int
    memory_kb: int | None
    answers: str


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the files, or time those that are there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--make", action="store_true")
    parser.add_argument("--alpha", type=float, default=0.5)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15, help="11 or more, for the intervals")
    parser.add_argument("--out", type=Path, default=HOME, help="folder; none: build/sparse/probe")
    parser.add_argument("--memory", nargs=3, metavar=("WHICH", "FILE", "SIZE"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    try:
        _run(options)
    except (EdgekitError, RunnerError) as error:
        raise SystemExit(str(error)) from None


def _run(options: argparse.Namespace) -> None:
    if options.memory:
        which, path, size = options.memory
        print(_grown_kb(which, Path(path), int(size)))
    elif options.make:
        _make(options.out, options.alpha, options.size)
    else:
        _measure(options.out, options.rounds)


def _make(home: Path, alpha: float, size: int) -> None:
    files.make(home, alpha, size)
    facts = [asdict(fact) for fact in _facts(home, size)]
    network = f"mobilenet_v1(alpha={alpha:g}, stem_stride=2), {size}x{size}x3"
    write_json(home / FACTS, {"network": network, "size": size, "facts": facts})


def _there(home: Path) -> Iterator[tuple[str, str, Path, str]]:
    """Every kind and pattern of which there is a file, the file, and how it is opened."""
    for kind, (name, how) in KINDS.items():
        for pattern in PATTERNS:
            if (path := folder_of(home, pattern) / name).exists():
                yield kind, pattern, path, how


def _facts(home: Path, size: int) -> Iterator[Fact]:
    opening = files.openers(size)
    for kind, pattern, path, how in _there(home):
        plain = KINDS[kind.partition(",")[0]]
        content = [path.read_bytes(), *([path.with_suffix(".bin").read_bytes()] if path.suffix == ".xml" else [])]
        answers = "" if plain == KINDS[kind] else _compared(opening, path, how, path.with_name(plain[0]))
        grown = None
        if pattern in WEIGHED:
            command = [sys.executable, "-m", "benchmarks.sparse", "--memory", how, str(path), str(size)]
            grown = int(subprocess.run(command, check=True, capture_output=True).stdout)
        print(f"{kind}, {pattern}: {grown} kB; {answers}", flush=True)
        zipped = sum(len(zlib.compress(each, 9)) for each in content)
        yield Fact(kind, pattern, sum(map(len, content)), zipped, grown, answers)


def _compared(opening: Any, path: Path, how: str, plain: Path) -> str:
    """With the bits of the file that does without."""
    apart = np.abs(opening[how](path)().astype(float) - opening[how](plain)())
    return "same bits" if not apart.any() else f"differ by {apart.max():.2g}"


def _grown_kb(which: str, path: Path, size: int) -> int:
    """Resident kilobytes that a model adds to this process, once its interpreter is imported."""
    import_module = {"tflite": "ai_edge_litert.interpreter", "onnx": "onnxruntime"}.get(which, "openvino")
    __import__(import_module)
    opener = files.openers(size)[which]
    before = _resident_kb()
    call = opener(path)
    for _ in range(WARMUP):
        call()
    return _resident_kb() - before


def _resident_kb() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


def _measure(home: Path, rounds: int) -> None:
    if not (home / FACTS).is_file():
        raise ConfigError(f"{home}: has no files yet; run python -m benchmarks.sparse --make --out {home} first")
    made = json.loads((home / FACTS).read_text())
    facts = {(each["kind"], each["pattern"]): Fact(**each) for each in made["facts"]}
    opening = files.openers(made["size"])
    calls = {f"{kind}|{pattern}": opening[how](path) for kind, pattern, path, how in _there(home)}
    samples_ms = interleaved(calls, rounds, CALLS, WARMUP)
    rows = []
    for key, values in samples_ms.items():
        kind, _, pattern = key.partition("|")
        fact, dense = facts[kind, pattern], f"{kind.partition(',')[0]}|{DENSE}"
        found = ratio(values, samples_ms[dense], rounds, CONFIDENCE)
        rows.append(
            (
                kind,
                pattern,
                f"{fact.size_bytes / 1000:,.0f}",
                f"{fact.zipped_bytes / 1000:,.0f}",
                "" if fact.memory_kb is None else f"{fact.memory_kb / 1024:.1f}",
                f"{np.median(values):.3f}",
                "1" if key == dense else f"{found.ratio:.2f} ({found.low:.2f} to {found.high:.2f})",
                fact.answers,
            )
        )
    lines = [" | ".join(cells) for cells in (HEAD, ["---"] * len(HEAD), *rows)]
    about = {"network": made["network"], "rounds": f"{rounds} of {CALLS} calls", **machine()}
    text = "\n".join([*(f"- {name}: {value}" for name, value in about.items()), "", *(f"| {line} |" for line in lines)])
    (home / "probe.md").write_text(f"{text}\n")
    print(text)


if __name__ == "__main__":
    main()
