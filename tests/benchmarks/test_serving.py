"""`python -m benchmarks.serving`: its options and its arithmetic. How fast servers are is not tested."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks.environments import NotRun
from benchmarks.serving import environments, figures, grpc_body, h2load, machine, open_loop, report, wrk
from benchmarks.serving.experiments import NAMES, forms
from benchmarks.serving.experiments import peers as peer_experiment
from benchmarks.serving.figures import Interval, Target
from benchmarks.serving.report import Finding
from benchmarks.serving.wrk import Post


def test_the_help_names_every_experiment() -> None:
    words = [sys.executable, "-m", "benchmarks.serving", "--help"]
    said = subprocess.run(words, cwd=machine.ROOT, capture_output=True, text=True, check=True).stdout
    assert "--rounds" in said
    assert all(name in said for name in NAMES)
    folder = machine.ROOT / "benchmarks" / "serving" / "experiments"
    assert {path.stem for path in folder.glob("*.py")} - {"__init__"} == set(NAMES)


@pytest.mark.parametrize("words", [("--rounds", "0"), ("--scale", "x"), ("--only", "nothing")])
def test_a_wrong_option_is_refused(words: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "benchmarks.serving", *words]
    done = subprocess.run(command, cwd=machine.ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert words[1] in done.stderr and "Traceback" not in done.stderr


def test_cpu_a_request() -> None:
    assert figures.cpu_us(0.5, 2000) == pytest.approx(250)
    assert figures.per_cpu_s(0.5, 2000) == pytest.approx(4000)
    assert figures.cpu_us(0.5, 0) == math.inf
    assert figures.per_cpu_s(0.0, 7) == math.inf


def test_cpu_of_a_tree_has_that_of_its_children() -> None:
    """Which burn what they say they burnt, living or waited for."""
    burn = "import time\nwhile time.process_time() < 0.3: pass\n"
    code = (
        "import subprocess, sys, time\n"
        f"burn = {burn!r}\n"
        "subprocess.run([sys.executable, '-c', burn])\n"
        "child = subprocess.Popen([sys.executable, '-c', burn + 'print(1, flush=True)\\ntime.sleep(60)'], stdout=-1)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    try:
        assert machine.tree(parent.pid) == [parent.pid, child]
        assert 0.55 < machine.cpu_s(parent.pid) < 3
        assert 0.25 < machine.ran_s(child) < machine.ran_s(parent.pid) < 3
        assert 0.25 < machine.cpu_s(child) < machine.cpu_s(parent.pid)
        assert 0 < machine.pss_mb(child) < 1000
    finally:
        os.kill(child, 9)
        parent.kill()
        parent.wait()
        parent.stdout.close()


def test_intervals_take_ten_rounds() -> None:
    values = [100.0 + number for number in range(11)]
    found = figures.of(values)
    assert found.is_sure and found.middle == 105 and 100 <= found.low < 105 < found.high <= 110
    few = figures.of(values[:3])
    assert not few.is_sure and (few.low, few.middle, few.high) == (100, 101, 102)
    assert "least and most" in few.text() and "least" not in found.text()


def test_a_quotient_is_of_values_of_the_same_round() -> None:
    """Whatever slows a whole round cancels."""
    pace = [1.0, 3.0, 0.5, 2.0, 1.5, 0.7, 1.1, 4.0, 0.9, 1.3]
    mine, theirs = [200 * each for each in pace], [100 * each for each in pace]
    found = figures.quotient(mine, theirs)
    assert (found.low, found.middle, found.high) == pytest.approx((2, 2, 2))
    few = figures.quotient(mine[:2], theirs[:2])
    assert (few.low, few.middle, few.high) == pytest.approx((2, 2, 2))


@pytest.mark.parametrize(
    ("ends", "at_least", "verdict"),
    [
        ((10, 11), True, "reached"),
        ((9, 11), True, "undecided"),
        ((8, 9), True, "not reached"),
        ((8, 10), False, "reached"),
        ((9, 11), False, "undecided"),
        ((11, 12), False, "not reached"),
    ],
)
def test_a_target_is_reached_where_all_of_the_interval_reaches_it(
    ends: tuple[float, float], at_least: bool, verdict: str
) -> None:
    assert Target("it", 10, at_least).verdict(Interval(sum(ends) / 2, *ends, 10)) == verdict


def test_parts_of_a_request_add_up() -> None:
    """100 requests of 400 µs for the client: 300 by the server's clock, of which 20 waited and 130 were the model's."""

    def statistics(count: int) -> dict[str, dict[str, int]]:
        us = {"success": 300, "queue": 20, "compute_input": 20, "compute_infer": 100, "compute_output": 10}
        return {key: {"count": count, "ns": each * 1000 * count} for key, each in us.items()}

    found = forms.parts(statistics(50), statistics(150), 100, 400.0)
    assert found == pytest.approx({"queue_us": 20, "model_us": 130, "form_us": 150, "network_us": 100})


def test_peers_are_compared_by_answers_a_cpu_second() -> None:
    finding = Finding("peers", "")
    ours, theirs = [[0.1, 1000.0, 1, 1, 1]] * 10, [[0.6, 500.0, 1, 1, 1]] * 10
    finding.rounds = {peer_experiment.OURS: ours, "LitServe 0.2.19, tuned": theirs}
    peer_experiment.tell(finding)
    [verdict] = finding.verdicts
    assert verdict["found"]["middle"] == pytest.approx(12)
    assert verdict["verdict"] == "reached"


def test_what_the_open_loop_client_counts() -> None:
    client = open_loop.Client.__new__(open_loop.Client)
    client.answers = [
        (200, False, 0.010),
        (200, False, 0.030),
        (503, False, 0.001),
        (503, True, 0.021),
        (500, False, 1),
    ]
    client.lags, client.blocked = [0.0, 0.001], 3
    found = open_loop.Outcome(**open_loop.outcome(client, [0.0] * 6, 2.0, 20.0))
    assert found.goodput == 0.5  # one answer in time, in two seconds
    assert (len(found.accepted_ms), len(found.refused_ms), found.expired) == (2, 2, 1)
    assert found.other == {"500": 1} and found.unanswered == 1 and found.blocked == 3


def test_arrivals_are_as_many_as_asked_for_and_the_same_each_time() -> None:
    due = open_loop.arrivals(1000, 10, 1)
    assert due == open_loop.arrivals(1000, 10, 1) != open_loop.arrivals(1000, 10, 2)
    assert due == sorted(due) and due[-1] < 10
    assert abs(len(due) - 10_000) < 500  # five standard deviations


def test_the_open_loop_client_does_not_wait_for_answers(tmp_path: Path) -> None:
    """A server that answers nothing gets every request all the same, when it is due."""
    import socket

    with socket.create_server(("127.0.0.1", 0), backlog=512) as listening:
        client = open_loop.Client(*listening.getsockname()[:2], open_loop.request(Post("/x", b"abc"), 20))
        try:
            begun = time.monotonic()
            client.run([0.0, 0.01, 0.02], 0.05)
            assert len(client.lags) == 3 and not client.answers
            assert time.monotonic() - begun < 30
        finally:
            for each in client.sockets.values():
                each.close()
            client.poll.close()


def test_a_signal_that_wrk_forgets_is_sent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that ends at its second SIGINT, as wrk does where the first came before it slept."""
    monkeypatch.setattr(wrk, "HOME", tmp_path)
    monkeypatch.setattr(wrk, "AGAIN_S", 0.1)
    code = (
        "import signal, time\n"
        "got = []\n"
        "signal.signal(signal.SIGINT, lambda *_: got.append(1))\n"
        "print('up', flush=True)\n"
        "while len(got) < 2: time.sleep(0.01)\n"
        "print('down')\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        assert wrk.Wrk("it", "http://localhost", Post("/x", b""))._end(process, 0.01) == "down\n"


def test_requests_of_h2load_are_read_and_a_bad_one_is_no_figure() -> None:
    assert h2load.read("it", "1\t200\t1500\n2\t200\t2500\n", 2).ms == [1.5, 2.5]
    with pytest.raises(NotRun, match="1 of them not by 2xx"):
        h2load.read("it", "1\t200\t1500\n2\t503\t2500\n", 2)
    with pytest.raises(NotRun, match="1 of 2 were answered"):
        h2load.read("it", "1\t200\t1500\n", 2)


def test_a_grpc_message_is_framed_and_its_fields_are_those_of_the_protocol() -> None:
    """Read by the rules of protobuf's wire format: (number << 3 | 2), length, content."""
    sample = np.arange(200, dtype=np.uint8).reshape(10, 20, 1)
    framed = grpc_body.body("digits", sample, "image")
    assert framed[0] == 0 and int.from_bytes(framed[1:5], "big") == len(framed) - 5
    fields = _fields(framed[5:])
    assert fields[1] == b"digits" and fields[7] == sample.tobytes() and _fields(fields[6]) == {1: b"output"}
    assert _fields(fields[5]) == {1: b"image", 2: b"UINT8", 3: bytes([1, 10, 20, 1])}


def _fields(message: bytes) -> dict[int, bytes]:
    found, place = {}, 0
    while place < len(message):
        number, place = _varint(message, place)
        size, place = _varint(message, place)
        assert number & 7 == 2
        found[number >> 3] = message[place : place + size]
        place += size
    return found


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        value |= (message[place] & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if not message[place - 1] & 0x80:
            return value, place


def test_a_peer_that_does_not_install_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(environments, "HOME", tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(NotRun, match="no-such-package"):
        environments.python_of("peer", ("no-such-package-of-edgekit==1",))
    assert not (tmp_path / "peer" / ".made").exists()


def test_the_report_says_what_was_not_run(tmp_path: Path) -> None:
    finding = Finding("peers", "title", missing=["Triton: no wheel"], table=[["a", "bb"], ["ccc", "d"]])
    finding.evaluate(Target("speed", 2.0), Interval(3.0, 2.5, 3.5, 10))
    text = report.write(tmp_path, {"cpu": "some"}, [finding])
    assert "NOT RUN Triton: no wheel" in text and "a    bb\nccc  d" in text
    assert "TARGET speed: 3 (2.5 to 3.5), target >= 2: reached" in text
    assert (tmp_path / "report.txt").read_text() == text
    [stored] = json.loads((tmp_path / "report.json").read_text())["experiments"]
    assert stored["missing"] == finding.missing and stored["verdicts"][0]["verdict"] == "reached"
