"""`edgerun bench --minutes`: what the command tells, as text and as JSON, to its end or to Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.hardware import emulation
from edgekit.device.measure import soak
from edgekit.runner.cli import main
from tests.runner import flat

pytestmark = pytest.mark.processes


def bench(bundle: Path, *words: object) -> list[str]:
    return ["bench", str(bundle), *map(str, words), "--no-trial"]


def test_the_command_tells_windows_findings_and_where(
    bundles: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(bench(bundles["onnx"], "--minutes", 0.05, "--rate", 100, "--window", 0.3)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 100 for line in lines)
    assert lines[0].startswith("onnxruntime ") and "threads: 1, device: CPU" in lines[0]
    assert lines[1].startswith("on ") and "Python 3" in lines[1]
    head = next(number for number, line in enumerate(lines) if "p99 ms" in line)
    assert [line.split()[1] for line in lines[head + 1 : head + 11]] == ["30"] * 10
    assert [line.split()[0] for line in lines[head + 11 :] if line[0] != " "][:4] == [
        "load", "throttling", "latency", "memory"
    ]  # fmt: skip


def test_as_json_it_carries_all_of_it(bundles: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*bench(bundles["onnx"], "--minutes", 0.02, "--json")]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["machine"]["host"] and facts["machine"]["cpu"] and facts["machine"]["python"]
    assert {facts["interpreter"], facts["device"]} == {"onnxruntime", "CPU"} and facts["version"]
    assert facts["threads"] == 1 and facts["architecture"] == facts["machine"]["machine"]
    assert facts["latency_from"] == "intended start" and not facts["cut_short"]
    assert 0 < facts["rate_per_s"] <= facts["capacity_per_s"] and len(facts["windows"]) == 1
    assert set(facts["findings"]) == {"saturated", "throttled", "drifted", "grew"}
    assert "too short to say" in facts["findings"]["drifted"]["words"]
    assert facts["comparable"] == (not facts["why"])


def test_what_the_device_cannot_do_is_not_comparable(
    bundles: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    words = bench(bundles["onnx"], "--minutes", 0.02, "--rate", 1e7, "--window", 0.2, "--json")
    assert main(words) == 0
    facts = json.loads(capsys.readouterr().out)
    assert not facts["comparable"] and "cannot keep up with" in facts["why"][0]


@pytest.mark.parametrize("command", [["--calls", "40"], ["--minutes", "0.02"]])
def test_a_stand_in_never_carries_a_devices_name(
    command: list[str], bundles: dict[str, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulation, "emulator", lambda: "qemu-aarch64")
    assert main([*bench(bundles["onnx"]), *command, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["emulated"] and not facts["comparable"] and "qemu-aarch64" in facts["why"][0]
    assert main([*bench(bundles["onnx"]), *command]) == 0
    assert (
        "NOT COMPARABLE: this machine is emulated by qemu-aarch64, so these times say nothing"
        in capsys.readouterr().out
    )


def test_an_emulator_is_known_by_the_program_that_runs(tmp_path: Path) -> None:
    assert emulation.emulator() == ""
    for name, known in (("qemu-aarch64-static", True), ("python3.11", False)):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
        assert emulation.emulator(str(tmp_path / name)) == (name if known else "")
    assert emulation.emulator(str(tmp_path / "nowhere")) == ""


@pytest.mark.parametrize(
    "words",
    [["--minutes", "1", "--calls", "5"], ["--minutes", "1", "--warmup", "0"], ["--rate", "5"], ["--window", "5"],
     ["--minutes", "0"], ["--minutes", "nan"], ["--minutes", "1", "--rate", "-1"], ["--minutes", "1", "--compare"]],
)  # fmt: skip
def test_misused_options_are_exit_code_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["bench", "x.edge.zip", *words])
    assert caught.value.code == 2
    assert "usage: edgerun bench" in capsys.readouterr().err


def test_control_c_tells_what_was_measured_so_far(bundles: dict[str, Path]) -> None:
    words = bench(bundles["onnx"], "--minutes", 10, "--rate", 100, "--window", 0.5)
    command = [sys.executable, "-m", "edgekit.runner", *words]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=flat.buffered())
    assert process.stdout is not None
    for line in process.stdout:  # a row is there as soon as its window is over
        if line.split()[0] == "1.0":
            break
    process.send_signal(signal.SIGINT)
    try:
        output, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130 and "Traceback" not in errors
    assert errors.strip().splitlines()[-1] == "edgerun: interrupted"
    assert "cut short after" in output and "of 1200 windows" in output and "load  " in output


@pytest.mark.parametrize(("last", "windows"), [(170, 3), (5, 0)])
def test_control_c_leaves_whole_json(
    last: int,
    windows: int,
    bundles: dict[str, Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numbers, run = iter(range(10**9)), soak.run_soak

    def interrupted(call: Callable[[], object], *rest: Any, **more: Any) -> soak.Soak:
        def once() -> object:
            if next(numbers) == last:
                raise KeyboardInterrupt
            return call()

        return run(once, *rest, **more)

    monkeypatch.setattr(soak, "run_soak", interrupted)
    assert main([*bench(bundles["onnx"], "--minutes", 1, "--rate", 100, "--window", 0.5), "--json"]) == 130
    facts = json.loads(capsys.readouterr().out)
    assert facts["cut_short"] and len(facts["windows"]) == windows
    assert ("saturated" in facts["findings"]) == (windows > 0)
