"""Bundles timed in turns on devices: impossible reports are refused, and a device that does not answer is named."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from edgekit.core.errors import EdgekitError
from edgekit.fleet.devices import remote_benchmark
from edgekit.fleet.devices.remote_benchmark import BenchmarkBundle, BenchmarkPlan, check_hosts, time_on_hosts
from edgekit.runner.bundle import sha256
from tests.device.releases.device import write
from tests.fleet.devices.rig import Rig
from tests.fleet.devices.sessions import host

pytestmark = pytest.mark.fleet

PLAN = BenchmarkPlan(rounds=10, calls_per_round=5, warmup_per_round=1, threads=1)
MACHINE = {"host": "x", "cpu": "Cortex-A72", "machine": "aarch64", "system": "Linux", "python": "3.11", "numpy": "2.0"}


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> BenchmarkBundle:
    data = write(tmp_path_factory.mktemp("timed") / "tiny.edge.zip").read_bytes()
    return BenchmarkBundle("tiny", "onnx", sha256.hexdigest(data), data)


def answer(sent: BenchmarkBundle, **changes: Any) -> str:
    row = {"sha256": sent.sha256, "samples_ns": [1000] * 50, "interpreter": "onnxruntime", "version": "1"}
    whole = {"bundles": [row], "openings": 10, "machine": MACHINE, "why": []}
    row |= {key: value for key, value in changes.items() if key in row}
    return json.dumps({**whole, **{key: value for key, value in changes.items() if key not in row}})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"machine": None}, "did not report what machine it is"),
        ({"machine": {**MACHINE, "cpu": 7}}, "did not report its cpu"),
        ({"openings": 1}, "reported 1 openings of each file in 10 rounds"),
        ({"openings": 7}, "reported 7 openings of each file in 10 rounds"),
        ({"samples_ns": [0] * 50}, "calls that took no time"),
        ({"samples_ns": [1000] * 49}, "did not report the times of 50 calls"),
        ({"samples_ns": [float("nan")] * 50}, "did not report the times of 50 calls"),
        ({"samples_ns": [-1] * 50}, "did not report the times of 50 calls"),
        ({"samples_ns": "fast"}, "did not report the times of 50 calls"),
        ({"sha256": "0" * 64}, "timed another file than tiny"),
        ({"bundles": []}, "timed other bundles than those requested"),
    ],
)
def test_a_report_that_no_measurement_can_give_is_refused(
    rig: Rig, sent: BenchmarkBundle, changes: dict[str, Any], message: str
) -> None:
    (rig.device(0) / "answer").write_text(answer(sent, **changes) + "\n")
    rig.setting(0, 'case "$SSH_ORIGINAL_COMMAND" in *" bench "*) cat "$HOME/answer"; exit 0;; esac')
    with pytest.raises(EdgekitError, match=f"^d0: .*{message}") as caught:
        time_on_hosts([host(rig)], [sent], PLAN)
    assert caught.value.exit_code == 8 and "\n" not in str(caught.value)


def test_a_device_measures_again_while_it_is_disturbed(
    rig: Rig, sent: BenchmarkBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_benchmark, "PAUSES_S", (0.0, 0.0))
    messages: list[str] = []
    (rig.device(0) / "answer").write_text(answer(sent, why=["it was 85 °C hot"]) + "\n")
    rig.setting(0, 'case "$SSH_ORIGINAL_COMMAND" in *" bench "*) cat "$HOME/answer"; exit 0;; esac')
    part = time_on_hosts([host(rig)], [sent], PLAN, say=messages.append)["d0"]
    assert part.disturbed == ("it was 85 °C hot",) and len(messages) == 2 and "measuring again" in messages[0]
    rig.setting(0, "")
    part = time_on_hosts([host(rig)], [sent], PLAN, say=messages.append)["d0"]
    assert part.samples_ms["tiny"].shape == (50,) and np.median(part.samples_ms["tiny"]) > 0


def test_one_that_does_not_answer_is_named_before_anything_is_done(rig: Rig) -> None:
    check_hosts([host(rig, 0), host(rig, 1)])
    with pytest.raises(EdgekitError, match=r"^d2: .*cannot be reached"):
        check_hosts([host(rig, 0), host(rig, 2, port=1)])
    assert not (rig.device(1) / ".edge").exists(), "the check changes nothing on a device"
