"""Measure what `edgerun live` adds to a model's own call, whether it falls behind, and what viewers of its page cost.

    python -m benchmarks.live [--rounds 6] [--seconds 8]

A film of 640 × 480 pixels is played through ffmpeg, and an untrained MobileNetV2 for 224 × 224 answers it on ONNX
Runtime with one thread.

- Latency: from a frame's arrival to the events that follow from its answer, at a third of the rate that the model could
  hold and at most 30 a second, beside `Model.predict` on the same frames at the same pace. The two take turns.
- Lag: a film with far more frames than that. What waits for the model is never older than a call, so the time from
  the arrival to the call does not grow.
- Viewers: as many answers per second as the model can give, with ten viewers of the page and without, in turns. The
  viewers run at the lowest priority, because in reality they are other machines.
- Idle page: the processor time of the page's process while nobody looks.
- Several sources: four films share the model, with one frame at a time and with one for each processor, in turns. The
  model has as many threads as there are processors, or one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.networks import untrained_bundle
from edgekit.device.live import config as configs
from edgekit.device.live.session import Session
from edgekit.runner import bundle, cpu
from edgekit.runner.bundle.manifest import RawSpec
from edgekit.runner.inputs import raw_frames
from edgekit.runner.model import Model, open_model

SIDE = 224
SIZE = "640x480"
WARMUP = 20
VIEWERS = 10
SOURCES = 4
TURN_S, TURNS_PER_ROUND = 2.0, 4
"""Turns with viewers and without are short and many, because other work on a machine lasts longer than a turn."""
TARGETS = {"latency": (1.15, 5.0), "idle": 0.01, "viewers": 0.02}
RULES = ({"name": "seen", "label": "3", "threshold": 0.5, "on_after_s": 1},)
VIEWER = """
import os, socket, sys
os.nice(19)
opened = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(int(sys.argv[2]))]
for each in opened:
    each.sendall(b"GET /stream.mjpg HTTP/1.0\\r\\n\\r\\n")
import selectors
ready = selectors.DefaultSelector()
for each in opened:
    ready.register(each, selectors.EVENT_READ)
while True:
    for key, _ in ready.select():
        key.fileobj.recv(1 << 20)
"""


class Rows(list[tuple[float, ...]]):
    """Takes the place of a lane's `Timing`, and keeps the parts of every answer."""

    count = 0

    def add(self, now_s: float, parts_ms: tuple[float, ...]) -> None:
        """Keep the parts."""
        self.append(parts_ms)
        self.count += 1

    def rate(self, now_s: float) -> float:
        """Return nothing of use."""
        return 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return nothing of use."""
        return {}


def main() -> None:
    """Measure and print everything."""
    parser = harness.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=8.0)
    options = parser.parse_args()
    print(harness.machine_conditions())
    samples = np.random.default_rng(0).integers(0, 256, (16, SIDE, SIDE, 3)).astype(np.uint8)
    raw = RawSpec("image", (SIDE, SIDE, 3), "uint8")
    steps = [{"step": "scale", "factor": 1 / 255}]
    builder, kwargs = "edgekit.models.mobilenet_v2:mobilenet_v2", {"alpha": 1.0, "last": 1280}
    path = untrained_bundle("mobilenet_v2_224", builder, kwargs, "fp32", "onnx", raw, steps, samples, 10)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["EDGERUN_HOME"] = folder
        model = open_model(bundle.read(path))
        call_ms = float(np.median([_call_ms(model, samples[0]) for _ in range(30)]))
        rate = min(30, max(1, int(1000 / call_ms / 3)))
        print(f"\nModel.predict: p50 {call_ms:.1f} ms, so {rate} frames per second are played")
        print_latency(model, _film(Path(folder), rate), rate, options.rounds, options.seconds)
        fast = int(2 * 1000 / call_ms)
        print_lag(model, _film(Path(folder), fast), fast, 2 * options.seconds)
        print_viewers(model, _film(Path(folder), rate), TURNS_PER_ROUND * options.rounds)
        for precision in ("fp32", "int8"):
            path = untrained_bundle("mobilenet_v2_224", builder, kwargs, precision, "onnx", raw, steps, samples, 10)
            for interpreter in ("onnxruntime", "openvino"):
                for threads in sorted({1, cpu.usable_core_count()}):
                    model = open_model(bundle.read(path), threads, interpreter)
                    print_sources(model, f"{precision}, {interpreter}", _film(Path(folder), rate), options.rounds)


def print_latency(model: Model, film: Path, rate: int, rounds: int, seconds: float) -> None:
    """Print the p50 and p99 from arrival to event beside those of the model's own call."""
    live_ms: list[float] = []
    calls_ms: list[float] = []
    frame = np.random.default_rng(1).integers(0, 256, (480, 640, 3)).astype(np.uint8)
    parts = []
    for _ in range(rounds):
        with _running(model, film) as (session, rows):
            time.sleep(seconds)
            while len(rows) < 2 * WARMUP:  # on a busy machine
                time.sleep(0.1)
            session.stop()
        parts += rows[WARMUP:]
        live_ms += [sum(row) for row in rows[WARMUP:]]
        sample = raw_frames.fit_frame(frame, model.manifest.raw)
        for number in range(max(int(rate * seconds), 2 * WARMUP)):
            spent = _call_ms(model, sample)
            calls_ms += [spent] if number >= WARMUP else []
            time.sleep(max(0.0, 1 / rate - spent / 1000))
    figures = [np.percentile(each, (50, 99)) for each in (live_ms, calls_ms)]
    factor, more = TARGETS["latency"]
    limit = factor * figures[1][1] + more
    print(f"\nfrom arrival to event: p50 {figures[0][0]:.1f} ms, p99 {figures[0][1]:.1f} ms ({len(live_ms)} frames)")
    print(f"Model.predict alone:   p50 {figures[1][0]:.1f} ms, p99 {figures[1][1]:.1f} ms ({len(calls_ms)} calls)")
    middle = np.median(np.array(parts), axis=0)
    print(
        "p50 of the parts, ms: "
        + ", ".join(f"{n} {v:.2f}" for n, v in zip(("read", "prepare", "model", "rules"), middle))
    )
    ratio = figures[0][1] / figures[1][1]
    print(f"p99 is {ratio:.2f} times that of the call; {factor} × + {more:g} ms would be {limit:.1f} ms")


def print_lag(model: Model, film: Path, rate: int, seconds: float) -> None:
    """Print how long frames wait for a model that is slower than the film, at the beginning and at the end."""
    with _running(model, film) as (session, rows):
        time.sleep(seconds)
        session.stop()
        feed = session.engine.feeds.feeds[0]
        dropped, arrived = feed.dropped + feed.source.status().dropped, feed.source.status().frames
    waits = [row[0] for row in rows[WARMUP:]]
    third = len(waits) // 3
    first, last = np.percentile(waits[:third], 99), np.percentile(waits[-third:], 99)
    print(f"\n{rate} frames per second: {dropped} of {arrived} dropped")
    print(f"p99 from arrival to the model's turn: first third {first:.1f} ms, last third {last:.1f} ms")


def print_viewers(model: Model, film: Path, turns: int) -> None:
    """Print the rate with ten viewers relative to that without, and the processor time of the idle page."""
    ratios, idle = [], []
    page = configs.PageConfig("127.0.0.1", 0)
    with _running(model, film, page=page, realtime=False) as (session, rows):
        assert session.page is not None
        port = session.page.url.rpartition(":")[2].strip("/")
        time.sleep(2)
        for number in range(turns):
            rates = {}
            for viewers in ((VIEWERS, 0), (0, VIEWERS))[number % 2]:
                words = [sys.executable, "-c", VIEWER, port, str(viewers)]
                process = subprocess.Popen(words) if viewers else None
                time.sleep(1)
                before, spent = len(rows), _processor_s(session)
                time.sleep(TURN_S)
                rates[viewers] = (len(rows) - before) / TURN_S
                if process is not None:
                    process.kill()
                    process.wait()
                else:
                    idle.append((_processor_s(session) - spent) / TURN_S)
            ratios.append(rates[VIEWERS] / rates[0])
        session.stop()
    change = harness.median(ratios)
    print(f"\n{VIEWERS} viewers: {change.middle:.3f} times the rate without ({change.low:.3f}-{change.high:.3f})")
    print(f"idle page: {100 * float(np.mean(idle)):.2f} % of a core")


def print_sources(model: Model, name: str, film: Path, rounds: int) -> None:
    """Print the answers per second to several sources with one frame at a time, and with one for each processor."""
    count = cpu.usable_core_count()
    ratios, rates = [], []
    for number in range(rounds):
        each = {}
        for parallel in ((1, count), (count, 1))[number % 2]:
            with _running(model, film, realtime=False, sources=SOURCES, parallel=parallel) as (session, _):
                time.sleep(1)
                before = sum(lane.timing.count for lane in session.engine.lanes)
                time.sleep(TURN_S)
                each[parallel] = (sum(lane.timing.count for lane in session.engine.lanes) - before) / TURN_S
        ratios.append(each[count] / each[1])
        rates.append(each)
    change = harness.median(ratios)
    middle = {parallel: float(np.median([each[parallel] for each in rates])) for parallel in (1, count)}
    print(
        f"\n{SOURCES} sources, {name}, {model.threads} threads: {middle[1]:.1f} answers per second one at a time, "
        f"{middle[count]:.1f} with {count} at once: {change.middle:.2f} times ({change.low:.2f}-{change.high:.2f})"
    )


def _processor_s(session: Session) -> float:
    """Return the processor time of the page's process so far."""
    assert session.page is not None and session.page.process is not None
    fields = Path(f"/proc/{session.page.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _running(
    model: Model,
    film: Path,
    page: configs.PageConfig | None = None,
    realtime: bool = True,
    sources: int = 1,
    parallel: int = 1,
) -> Iterator[tuple[Session, Rows]]:
    films = tuple(
        configs.SourceConfig(f"film-{number}", str(film), {"loop": True, "realtime": realtime})
        for number in range(sources)
    )
    config = configs.LiveConfig((configs.ModelConfig("model", ""),), films, RULES, page=page, parallel=parallel)
    session = Session(config, {"model": model}, lambda event: None, lambda answer, line: None, print)
    rows = Rows()
    session.engine.lanes[0].timing = rows  # type: ignore[assignment]
    thread = threading.Thread(target=session.run)
    thread.start()
    try:
        yield session, rows
    finally:
        session.stop()
        thread.join()


def _call_ms(model: Model, sample: np.ndarray) -> float:
    started = time.perf_counter()
    model.predict(sample)
    return 1000 * (time.perf_counter() - started)


def _film(folder: Path, rate: int) -> Path:
    path = folder / f"{rate}.mp4"
    if not path.exists():
        source = f"testsrc2=s={SIZE}:r={rate}:d=20"
        words = ["-loglevel", "error", "-y", "-f", "lavfi", "-i", source, "-c:v", "mpeg4", "-q:v", "3"]
        subprocess.run(["ffmpeg", *words, str(path)], check=True)
    return path


if __name__ == "__main__":
    main()
