"""Measure what keyword spotting costs on a stream: log-mel of only the new frames, and the complete real-time factor.

    python -m benchmarks.streams [--rounds 20]

Log-mel is computed for windows of 1 s at 16 kHz, with frames of 30 ms every 20 ms and 40 bands. For each hop, computing
only the new frames is timed beside computing the same window completely, in alternating rounds. Ratios are taken within
a round, with a 99 % interval over rounds.

The real-time factor is the computing time for a second of audio, from PCM to answers, with an untrained DS-CNN of 12
classes on ONNX Runtime with one thread. `reused` is `Model.stream`, and `anew` calls `Model.predict` for every window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks import harness
from benchmarks.networks import untrained_bundle
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
    """Measure and print both tables."""
    parser = harness.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    print(harness.machine_conditions())
    audio = np.random.default_rng(0).uniform(-0.5, 0.5, RATE_HZ * 8).astype(np.float32)
    print_log_mel_times(audio, rounds)
    print_real_time_factors(audio, rounds)


def print_log_mel_times(audio: np.ndarray, rounds: int) -> None:
    """Print how many times cheaper a hop is than a window that is computed completely."""
    full_window = transform.pipeline([MEL])
    calls: dict[str, Callable[[], object]] = {"anew": lambda: full_window(audio[:RATE_HZ])}
    calls |= {str(hop): _hop_call(audio, hop) for hop in HOPS}
    samples_ms = time_interleaved(calls, rounds, CALLS, 2)
    print(f"\nlog-mel of a 1 s window, anew: p50 {np.median(samples_ms['anew']):.3f} ms")
    for hop in HOPS:
        ratio = ratio_interval(samples_ms["anew"], samples_ms[str(hop)], rounds, 0.99)
        cheaper = f"{ratio.ratio:.2f} times cheaper ({ratio.low:.2f}-{ratio.high:.2f})"
        print(f"hop {1000 * hop // RATE_HZ:>4} ms: p50 {np.median(samples_ms[str(hop)]):.3f} ms, {cheaper}")


def _hop_call(audio: np.ndarray, hop: int) -> Callable[[], object]:
    """Return a call that computes the next window of the audio, starting over at its end."""
    windows = sliding_windows.SlidingPreprocess([MEL], RATE_HZ)
    start = 0

    def call() -> object:
        nonlocal start
        position = start % (len(audio) - RATE_HZ)
        features = windows(audio[position : position + RATE_HZ], start)
        start += hop
        return features

    call()
    return call


def print_real_time_factors(audio: np.ndarray, rounds: int) -> None:
    """Print the computing time for a second of audio."""
    model = open_model(bundle.read(keyword_bundle()))
    pcm = (audio[: RATE_HZ * (SECONDS + 1)] * 32767).astype("<i2")
    seconds = SECONDS + 1
    print(f"\nreal-time factor over {seconds} s of sound in parts of {1000 * PART_SAMPLES // RATE_HZ} ms")
    for hop in HOPS[:3]:
        calls = {
            "reused": lambda hop=hop: count_stream_windows(model, pcm, hop),
            "anew": lambda hop=hop: predict_windows(model, pcm, hop),
        }
        samples_ms = time_interleaved(calls, rounds, 1, 0)
        ratio = ratio_interval(samples_ms["anew"], samples_ms["reused"], rounds, 0.99)
        factors = {name: np.percentile(values / 1000 / seconds, (50, 5, 95)) for name, values in samples_ms.items()}
        cells = [f"{name} {p50:.4f} ({low:.4f}-{high:.4f})" for name, (p50, low, high) in factors.items()]
        cells.append(f"{ratio.ratio:.2f}x ({ratio.low:.2f}-{ratio.high:.2f})")
        print(f"hop {1000 * hop // RATE_HZ:>4} ms: {', '.join(cells)}")


def count_stream_windows(model: Model, pcm: np.ndarray, hop: int) -> int:
    """Return the number of windows that the stream answers."""
    parts: Iterator[bytes] = (
        pcm[position : position + PART_SAMPLES].tobytes() for position in range(0, len(pcm), PART_SAMPLES)
    )
    return sum(answer.prediction is not None for answer in model.stream(parts, "s16le", hop=hop))


def predict_windows(model: Model, pcm: np.ndarray, hop: int) -> int:
    """Predict the same windows one by one and return their number."""
    x = pcm.astype(np.float32) / np.float32(32768)
    starts = range(0, len(x) - RATE_HZ + 1, hop)
    for start in starts:
        model.predict(x[start : start + RATE_HZ])
    return len(starts)


def keyword_bundle() -> Path:
    """Return an untrained DS-CNN over log-mel as an ONNX bundle, which is created if it does not exist."""
    raw = RawSpec("audio", (RATE_HZ,), "float32", (-1.0, 1.0), RATE_HZ)
    sounds = np.random.default_rng(1).uniform(-0.5, 0.5, (16, RATE_HZ)).astype(np.float32)
    return untrained_bundle("keyword", "edgekit.models.ds_cnn:ds_cnn", {}, "fp32", "onnx", raw, [MEL], sounds, CLASSES)


if __name__ == "__main__":
    main()
