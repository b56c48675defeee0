"""Triton's own perf_analyzer 2.51.0, unmodified, measures edgekit's server over HTTP and gRPC.

It refuses a server without `/config` and `/stats`, and takes apart what the statistics say. It ends with exit code 2
where three windows in a row differ by more than `-s` percent, and with 99 where it cannot measure. Three windows never
differ from their mean by 999 %, so a noisy machine does not fail these tests.
"""

from __future__ import annotations

import csv
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.serve import triton
from tests.serve.conftest import changed
from tests.serve.grpc_server import Server

pytestmark = pytest.mark.serving

PROGRAM = triton.ENVIRONMENT / "bin" / "perf_analyzer"
LIBRARIES = triton.INSTALLED.packages / "nvidia" / "cuda_runtime" / "lib"
WINDOWS = ("--measurement-mode", "count_windows", "--measurement-request-count", "20", "--max-trials", "3", "-s", "999")
SERVER_PARTS = ("Server Queue", "Server Compute Input", "Server Compute Infer", "Server Compute Output")
NOT_STABLE, NOT_MEASURED = 2, 99
LONGEST_S = 180


@dataclass(frozen=True)
class Measured:
    """How a measurement ended. `row` is its only line of CSV, in microseconds; empty where there is none."""

    code: int
    output: str
    row: dict[str, float]

    def number(self, pattern: str) -> float:
        """The first group of a pattern in what it printed."""
        found = re.search(pattern, self.output)
        assert found, self.output
        return float(found[1])


@pytest.fixture(scope="module", autouse=True)
def _program() -> None:
    """Fail with what is lacking, rather than with a loader's words."""
    triton.need()
    done = run("--version")
    if done.returncode:
        pytest.fail(
            f"perf_analyzer does not start: {done.stderr.strip()}. It needs Debian's libb64-0d, and the wheel "
            "nvidia-cuda-runtime-cu12: remove build/triton/.made, and run `make build/triton/.made`"
        )


@pytest.fixture(scope="module")
def server(bundles: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The same network as version 3 and as version 1.2.0."""
    folder = tmp_path_factory.mktemp("perf")
    whole = changed(bundles["onnx"], folder / "whole.edge.zip", name="whole", version="3")
    running = Server.start(folder, whole, bundles["onnx"], "--drain-s", "0.1")
    yield running
    assert running.stop() == 0
    assert "internal error" not in running.log_text(), running.log_text()


def run(*words: str) -> subprocess.CompletedProcess[str]:
    paths = [str(LIBRARIES), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    variables = {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(paths)}
    return subprocess.run([str(PROGRAM), *words], capture_output=True, text=True, env=variables, timeout=LONGEST_S)


def measure(server: Server, model: str, protocol: str, folder: Path, *options: str) -> Measured:
    """Two requests at a time; three windows of a second each."""
    address = {"http": server.http.rpartition("/")[2], "grpc": server.grpc}[protocol]
    path = folder / "measured.csv"
    words = ("-m", model, "-i", protocol, "-u", address, "--concurrency-range", "2", "-f", str(path))
    done = run(*words, *WINDOWS, *options)
    rows = list(csv.DictReader(path.read_text().splitlines())) if path.is_file() else []
    row = {key: float(value) for key, value in rows[0].items()} if rows else {}
    return Measured(done.returncode, done.stdout + done.stderr, row)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("batch", [1, 4])
def test_it_measures_the_server_and_takes_its_statistics_apart(
    protocol: str, batch: int, server: Server, tmp_path: Path
) -> None:
    found = measure(server, "whole", protocol, tmp_path, "-b", str(batch))
    assert found.code == 0, found.output
    assert found.row["Inferences/Second"] > 0
    assert set(SERVER_PARTS) <= found.row.keys()
    assert found.row["Server Compute Infer"] > 0
    assert sum(found.row[part] for part in SERVER_PARTS) <= found.number(r"Avg latency: (\d+) usec")
    sent = found.number(r"Client: \n\s+Request count: (\d+)")
    counted = found.number(r"Server: \n\s+Inference count: (\d+)")
    assert batch * sent / 2 <= counted <= 2 * batch * sent  # a window begins and ends elsewhere on either side
    [facts] = server.json("/v2/models/whole/stats")["model_stats"]
    assert facts["inference_count"] >= counted
    assert facts["inference_stats"]["fail"]["count"] == 0


@pytest.mark.parametrize("options", [("--input-tensor-format", "json", "--output-tensor-format", "json"), ("-a",)])
def test_it_measures_json_and_calls_that_do_not_wait(options: tuple[str, ...], server: Server, tmp_path: Path) -> None:
    found = measure(server, "whole", "http", tmp_path, *options)
    assert found.code == 0, found.output
    assert found.row["Inferences/Second"] > 0


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_of_a_version_that_is_no_whole_number_it_measures_all_but_the_servers_part(
    protocol: str, server: Server, tmp_path: Path
) -> None:
    """It looks for the statistics of version 1 where the server gives those of version 1.2.0; the page says so."""
    found = measure(server, "tiny", protocol, tmp_path)
    assert found.code == 0, found.output
    assert found.row["Inferences/Second"] > 0
    assert [found.row[part] for part in SERVER_PARTS] == [0, 0, 0, 0]
    [facts] = server.json("/v2/models/tiny/stats")["model_stats"]
    assert facts["inference_stats"]["compute_infer"]["count"] > 0


def test_its_exit_codes_distinguish_a_refusal_from_an_unsteady_machine(server: Server, tmp_path: Path) -> None:
    refused = measure(server, "nobody", "http", tmp_path)
    assert refused.code == NOT_MEASURED
    assert "served are tiny, whole" in refused.output
    wavering = measure(server, "whole", "http", tmp_path, "-s", "0.000001")
    assert wavering.code == NOT_STABLE
    assert "Failed to obtain stable measurement" in wavering.output
