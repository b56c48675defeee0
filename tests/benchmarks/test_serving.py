"""`python -m benchmarks.serving`: its options and its arithmetic. How fast servers are is not tested."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.harness import ROOT, ExperimentResult
from benchmarks.serving import load, machine, open_loop
from benchmarks.serving.__main__ import EXPERIMENTS
from benchmarks.serving.experiments import peers
from benchmarks.serving.load import PostRequest


def test_the_help_names_every_experiment() -> None:
    words = [sys.executable, "-m", "benchmarks.serving", "--help"]
    output = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "--rounds" in output
    assert all(name in output for name in EXPERIMENTS)


@pytest.mark.parametrize("words", [("--rounds", "0"), ("--scale", "x"), ("--only", "nothing")])
def test_a_wrong_option_is_refused(words: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "benchmarks.serving", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert words[1] in done.stderr and "Traceback" not in done.stderr


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
        assert [each.pid for each in machine.process_tree(parent.pid)] == [parent.pid, child]
        assert 0.55 < machine.cpu_s(parent.pid) < 3
        assert 0.25 < machine.thread_time_s(child) < machine.thread_time_s(parent.pid) < 3
        assert 0.25 < machine.cpu_s(child) < machine.cpu_s(parent.pid)
        assert 0 < machine.process_tree(child)[0].memory_full_info().pss < 1e9
    finally:
        os.kill(child, 9)
        parent.kill()
        parent.wait()
        parent.stdout.close()


def test_peers_are_compared_by_answers_a_cpu_second() -> None:
    finding = ExperimentResult("peers", "")
    local, other = [[0.1, 1000.0, 1, 1, 1]] * 10, [[0.6, 500.0, 1, 1, 1]] * 10
    finding.rounds = {peers.OURS: local, "LitServe 0.2.19, tuned": other}
    peers.fill_result(finding)
    [verdict] = finding.verdicts
    assert verdict["found"]["middle"] == pytest.approx(12)
    assert verdict["verdict"] == "reached"


def test_what_the_open_loop_client_counts() -> None:
    client = open_loop.OpenLoopClient.__new__(open_loop.OpenLoopClient)
    client.answers = [
        (200, False, 0.010),
        (200, False, 0.030),
        (503, False, 0.001),
        (503, True, 0.021),
        (500, False, 1),
    ]
    client.lags, client.blocked = [0.0, 0.001], 3
    result = open_loop.outcome(client, [0.0] * 6, 2.0, 20.0)
    assert result["goodput"] == 0.5  # one answer in time, in two seconds
    assert (result["accepted"], result["refused"], result["expired"]) == (2, 2, 1)
    assert result["other"] == 1 and result["unanswered"] == 1 and result["blocked"] == 3
    assert result["accepted_p99_ms"] == pytest.approx(29.8) and result["refused_most_ms"] == 21


def test_arrivals_are_as_many_as_asked_for_and_the_same_each_time() -> None:
    due = open_loop.arrival_times(1000, 10, 1)
    assert due == open_loop.arrival_times(1000, 10, 1) != open_loop.arrival_times(1000, 10, 2)
    assert due == sorted(due) and due[-1] < 10
    assert abs(len(due) - 10_000) < 500  # five standard deviations


def test_the_open_loop_client_does_not_wait_for_answers(tmp_path: Path) -> None:
    """A server that answers nothing gets every request all the same, when it is due."""
    import socket

    with socket.create_server(("127.0.0.1", 0), backlog=512) as listening:
        client = open_loop.OpenLoopClient(
            *listening.getsockname()[:2], open_loop.request_bytes(PostRequest("/x", b"abc"), 20)
        )
        try:
            started = time.monotonic()
            client.run([0.0, 0.01, 0.02], 0.05)
            assert len(client.lags) == 3 and not client.answers
            assert time.monotonic() - started < 30
        finally:
            for each in client.sockets.values():
                each.close()
            client.poll.close()


def test_a_signal_that_wrk_forgets_is_sent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that ends at its second SIGINT, as wrk does where the first came before it slept."""
    monkeypatch.setattr(load, "HOME", tmp_path)
    monkeypatch.setattr(load, "SIGNAL_INTERVAL_S", 0.1)
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
        assert load.Wrk("it", "http://localhost", PostRequest("/x", b""))._output_of(process, 0.01) == "down\n"
