"""What metrics cost an answer of the runner: `predict` with them beside the same `predict` without.

    python -m benchmarks.metrics_cost [--rounds 60]

All take turns in one process, each with a model of its own. In each round the median call with metrics is held against
that without. `off` is a second model without metrics: what its difference shows is the method's own error.
The network is one dense layer, so that the share of the metrics is the largest there is.
Behind the calls stands what one page of figures takes, which a thread of its own makes; and by how much a scraper of
another process slows the answers, in stretches of half a second with and without it that take turns. Where neighbours
share the cores, the processor time an answer takes (the pages' own counted in) says more than the clock.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from edgekit.runner import load
from edgekit.runner.measure.bench import interleaved
from edgekit.runner.measure.intervals import round_p50s
from edgekit.runner.monitor.metrics import Metrics
from tests.runner import flat

CALLS = 1000
WARM = 100
SCRAPES = 50
STRETCH_S = 0.5
SCRAPER = """
import sys, time, urllib.request
for line in sys.stdin:
    until = time.monotonic() + float(line)
    while time.monotonic() < until:
        urllib.request.urlopen(sys.argv[1]).read()
        time.sleep(float(sys.argv[2]))
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="edgekit-metrics-") as name:
        path = flat.write(Path(name) / "flat.edge.zip", flat.VECTOR)
        sample = flat.examples(flat.VECTOR, 1)[0]
        page = Metrics()
        places: dict[str, str | Metrics | None] = {
            "without": None,
            "off": None,
            "counted": page,
            "file": str(Path(name) / "model.prom"),
            "port": "127.0.0.1:0",
        }
        models = {what: load(path, trial=False, metrics=place) for what, place in places.items()}
        calls = {what: partial(model.predict, sample) for what, model in models.items()}
        taken = interleaved(calls, options.rounds, CALLS, WARM)
        base = round_p50s(taken["without"], options.rounds) * 1e3
        print(
            f"one predict without metrics: {np.median(base):.2f} µs; {options.rounds} rounds of {CALLS} calls, p50 each"
        )
        for what in places:
            if what == "without":
                continue
            more = round_p50s(taken[what], options.rounds) * 1e3 - base
            low, middle, high = np.quantile(more, (0.05, 0.5, 0.95))
            print(f"{what:<9}{middle:+6.2f} µs a call (nine rounds of ten {low:+.2f} to {high:+.2f})")
        spent = []
        for _ in range(SCRAPES):
            before = time.perf_counter()
            size = len(page.text())
            spent.append(1e3 * (time.perf_counter() - before))
        low, middle, high = np.quantile(spent, (0.05, 0.5, 0.95))
        print(f"a page of {size} bytes: {middle:.2f} ms ({low:.2f} to {high:.2f})")
        port = Metrics("127.0.0.1:0")
        port.add(models["counted"])
        print(f"a scrape: {a_scrape_ms(str(port.where)):.2f} ms of processor time, where nothing else is asked")
        port.close()
        under_scrapes(path, sample, 0.5, options.rounds)
        for model in models.values():
            model.observers.close()


def a_scrape_ms(where: str) -> float:
    """Processor time that this process spends on one of another process."""
    used = time.process_time()
    code = "import sys, urllib.request as u; [u.urlopen(sys.argv[1]).read() for _ in range(int(sys.argv[2]))]"
    subprocess.run([sys.executable, "-c", code, where, str(SCRAPES)], check=True)
    return 1e3 * (time.process_time() - used) / SCRAPES


def under_scrapes(path: Path, sample: np.ndarray, every_s: float, rounds: int) -> None:
    """How much longer an answer takes while somebody asks for the figures."""
    metrics = Metrics("127.0.0.1:0")
    model = load(path, trial=False, metrics=metrics)
    command = [sys.executable, "-c", SCRAPER, str(metrics.where), str(every_s)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True, bufsize=1) as scraper:
        assert scraper.stdin
        more: dict[str, list[float]] = {"on the clock": [], "of processor time": []}
        for number in range(rounds):
            spent = {}
            for scraped in (False, True) if number % 2 else (True, False):
                if scraped:
                    scraper.stdin.write(f"{STRETCH_S - 0.01}\n")
                spent[scraped] = an_answer(partial(model.predict, sample))
            for what, with_it, without in zip(more, spent[True], spent[False], strict=True):
                more[what].append(100 * (with_it / without - 1))
        scraper.stdin.close()
    metrics.close()
    for what, shares in more.items():
        low, middle, high = np.quantile(shares, (0.05, 0.5, 0.95))
        print(f"scraped every {every_s} s: {middle:+.2f} % {what} (nine rounds of ten {low:+.2f} to {high:+.2f} %)")


def an_answer(call: Callable[[], object]) -> tuple[float, float]:
    """Seconds of one within a stretch, on the clock and of the process."""
    began, used, done = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - began < STRETCH_S:
        call()
        done += 1
    return (time.perf_counter() - began) / done, (time.process_time() - used) / done


if __name__ == "__main__":
    started = time.perf_counter()
    main()
    print(f"took {time.perf_counter() - started:.0f} s", file=sys.stderr)
