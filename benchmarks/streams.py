"""What a stream of keywords costs: log-mel for the new frames alone, and the real-time factor of the whole.

    python -m benchmarks.streams [--rounds 20]

Log-mel: 1 s windows of 16 kHz, frames of 30 ms every 20 ms, 40 bands. Each hop is timed against the same window
computed anew, in rounds that take turns; the quotient is within a round, with a 99 % interval over rounds.

Real-time factor: seconds of computing for a second of sound, from PCM to answers, with an untrained DS-CNN of 12
classes on ONNX Runtime, one thread. `reused` is `Model.stream`, `anew` calls `Model.predict` for every window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks import harness
from benchmarks.networks import bundled
from edgekit.device.measure.bench import time_interleaved
from edgekit.device.measure.intervals import ratio_interval
from edgekit.runner import bundle
from edgekit.runner.bundle.manifest import RawSpec
from edgekit.runner.model import Model, open_model
from edgekit.runner.preprocess import sliding_windows, transform

RATE_HZ = 16_000
MEL = {
    "step": "log_mel", "rate_hz": RATE_HZ, "window_samples": 480, "hop_samples": 320, "fft_samples": 512,
    "mels": 40, "low_hz": 20.0, "high_hz": 4000.0, "floor": 1e-6,
}  # fmt: skip
HOPS = (320, 1600, 3200, 8000)
CALLS, SECONDS, PART_SAMPLES = 20, 3, 320
CLASSES = 12


def main() -> None:
    """Both tables."""
    parser = harness.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    print(harness.conditions())
    sound = np.random.default_rng(0).uniform(-0.5, 0.5, RATE_HZ * 8).astype(np.float32)
    log_mel(sound, rounds)
    real_time(sound, rounds)


def log_mel(sound: np.ndarray, rounds: int) -> None:
    """How many times cheaper a hop is than a window computed anew."""
    anew = transform.pipeline([MEL])
    calls: dict[str, Callable[[], object]] = {"anew": lambda: anew(sound[:RATE_HZ])}
    calls |= {str(hop): _hopping(sound, hop) for hop in HOPS}
    taken = time_interleaved(calls, rounds, CALLS, 2)
    print(f"\nlog-mel of a 1 s window, anew: p50 {np.median(taken['anew']):.3f} ms")
    for hop in HOPS:
        share = ratio_interval(taken["anew"], taken[str(hop)], rounds, 0.99)
        cheaper = f"{share.ratio:.2f} times cheaper ({share.low:.2f}-{share.high:.2f})"
        print(f"hop {1000 * hop // RATE_HZ:>4} ms: p50 {np.median(taken[str(hop)]):.3f} ms, {cheaper}")


def _hopping(sound: np.ndarray, hop: int) -> Callable[[], object]:
    """A call for each next window of the sound, over and over."""
    windows = sliding_windows.SlidingPreprocess([MEL], RATE_HZ)
    start = 0

    def call() -> object:
        nonlocal start
        place = start % (len(sound) - RATE_HZ)
        made = windows(sound[place : place + RATE_HZ], start)
        start += hop
        return made

    call()
    return call


def real_time(sound: np.ndarray, rounds: int) -> None:
    """Seconds of computing for a second of sound."""
    model = open_model(bundle.read(keyword_bundle()))
    pcm = (sound[: RATE_HZ * (SECONDS + 1)] * 32767).astype("<i2")
    seconds = SECONDS + 1
    print(f"\nreal-time factor over {seconds} s of sound in parts of {1000 * PART_SAMPLES // RATE_HZ} ms")
    for hop in HOPS[:3]:
        calls = {"reused": lambda hop=hop: streamed(model, pcm, hop), "anew": lambda hop=hop: alone(model, pcm, hop)}
        taken = time_interleaved(calls, rounds, 1, 0)
        share = ratio_interval(taken["anew"], taken["reused"], rounds, 0.99)
        factors = {name: np.percentile(values / 1000 / seconds, (50, 5, 95)) for name, values in taken.items()}
        cells = [f"{name} {p50:.4f} ({low:.4f}-{high:.4f})" for name, (p50, low, high) in factors.items()]
        cells.append(f"{share.ratio:.2f}x ({share.low:.2f}-{share.high:.2f})")
        print(f"hop {1000 * hop // RATE_HZ:>4} ms: {', '.join(cells)}")


def streamed(model: Model, pcm: np.ndarray, hop: int) -> int:
    """How many windows the stream has."""
    parts: Iterator[bytes] = (pcm[at : at + PART_SAMPLES].tobytes() for at in range(0, len(pcm), PART_SAMPLES))
    return sum(answer.prediction is not None for answer in model.stream(parts, "s16le", hop=hop))


def alone(model: Model, pcm: np.ndarray, hop: int) -> int:
    """The same windows, each for itself."""
    x = pcm.astype(np.float32) / np.float32(32768)
    starts = range(0, len(x) - RATE_HZ + 1, hop)
    for start in starts:
        model.predict(x[start : start + RATE_HZ])
    return len(starts)


def keyword_bundle() -> Path:
    """An untrained DS-CNN over log-mel as an ONNX bundle, made if it is not there."""
    raw = RawSpec("audio", (RATE_HZ,), "float32", (-1.0, 1.0), RATE_HZ)
    sounds = np.random.default_rng(1).uniform(-0.5, 0.5, (16, RATE_HZ)).astype(np.float32)
    return bundled("keyword", "edgekit.models.ds_cnn:ds_cnn", {}, "fp32", "onnx", raw, [MEL], sounds, CLASSES)


if __name__ == "__main__":
    main()
