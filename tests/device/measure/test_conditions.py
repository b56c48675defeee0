"""Other load on the machine: seen here with a real busy process, and on machines imitated by trees of files."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgekit.device.measure import conditions, counters
from edgekit.device.measure.conditions import Conditions, ConditionsRecorder, differences, noise_reasons

BUSY = "import time; end = time.process_time() + {:g}\nwhile time.process_time() < end: pass"
CORES = sorted(os.sched_getaffinity(0))
QUIET = Conditions(
    seconds=10.0, others_share=0.01, steal_share=0.0, preempted_per_s=3.0, quota_stops=0, load_before=0.1,
    load_after=0.9, governor="performance", clock_mhz=2400.0, clock_change=0.01, throttled=False,
    temperature_before_c=50.0, temperature_after_c=55.0, pace_ms=1.0, pace_change=0.02, noise=0.01,
)  # fmt: skip
RESULT = {
    "host": "edge", "cpu": "Cortex-A76", "cores": 4, "machine": "aarch64", "system": "Linux 6.6", "python": "3.11.2",
    "numpy": "2.0.1", "threads": 1, "governor": "performance", "emulator": None, "calls_per_round": 20,
    "warmup_per_round": 5, "interpreters": {"litert": "2.3.0", "torch": "2.13.0"}, "seen": QUIET.to_dict(),
    "disturbed": [],
}  # fmt: skip


def lay(root: Path, busy: int = 0, steal: int = 0, mhz: int = 2400, stops: int = 0) -> Path:
    """A machine whose kernel has counted so many ticks of each core that this test may use."""
    stat = "".join(f"cpu{core} {busy} 0 0 900 50 0 0 {steal} 0 0\n" for core in CORES)
    files = {
        "proc/stat": f"cpu  1 1 1 1 1 1 1 1 0 0\n{stat}intr 1\n",
        "proc/self/cgroup": "0::/box",
        "sys/fs/cgroup/box/cpu.stat": f"usage_usec 1\nnr_periods 4\nnr_throttled {stops}",
        **{f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq": f"{mhz}000" for core in CORES},
        f"sys/devices/system/cpu/cpu{CORES[0]}/cpufreq/scaling_governor": "schedutil",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_a_busy_neighbour_is_seen_for_as_much_as_it_takes() -> None:
    with ConditionsRecorder() as watch:
        times = os.times()
        subprocess.run([sys.executable, "-c", BUSY.format(1.0)], check=True)
        after = os.times()
    took_s = after.children_user + after.children_system - times.children_user - times.children_system
    seen = watch.result()
    assert seen.others_share is not None
    assert seen.others_share * seen.seconds * len(CORES) > took_s - 0.1 > 0.8
    is_reported = any("other processes took" in words for words in noise_reasons(seen))
    assert is_reported is (seen.others_share > conditions.MAX_OTHERS_SHARE)  # of sixty cores, one neighbour is not much


def test_a_childs_time_is_ones_own_where_children_do_the_work() -> None:
    before = counters.read_counters(children=True), counters.read_counters()
    subprocess.run([sys.executable, "-c", BUSY.format(0.5)], check=True)
    after = counters.read_counters(children=True), counters.read_counters()
    ours, alone = (later.own_s - sooner.own_s for later, sooner in zip(after, before, strict=True))
    assert ours - alone >= 0.45


def test_ones_own_work_is_not_held_against_it(tmp_path: Path) -> None:
    """The kernel counts what this process burns, and it is taken off again."""
    root = lay(tmp_path)
    with ConditionsRecorder(root=root) as watch:
        begun = time.process_time()
        while time.process_time() - begun < 2 * conditions.SHORTEST_S:
            pass
        lay(root, busy=round(100 * (time.process_time() - begun) / len(CORES)))
    share = watch.result().others_share
    assert share is not None and share < 0.03


def test_what_the_kernel_counted_becomes_shares(tmp_path: Path) -> None:
    root = lay(tmp_path, busy=1000, steal=7)
    with ConditionsRecorder(root=root) as watch:
        time.sleep(conditions.SHORTEST_S + 0.1)
        lay(root, busy=1030, steal=12, stops=3)
    seen = watch.result()
    assert seen.others_share == pytest.approx(0.30 / seen.seconds, abs=0.02)
    assert seen.steal_share == pytest.approx(0.05 / seen.seconds)
    assert seen.quota_stops == 3 and seen.governor == "schedutil"
    reasons = "; ".join(noise_reasons(seen))
    for words in ("other processes took", "the hypervisor withheld", "stopped 3 times by the quota"):
        assert words in reasons


def test_a_clock_that_changes_is_seen_and_one_that_wakes_up_is_not(tmp_path: Path) -> None:
    for clocks, change in (((1000, 2400, 2400), 0.0), ((2400, 2400, 1500), 0.6)):
        root = lay(tmp_path, mhz=clocks[0])
        with ConditionsRecorder(root=root) as watch:
            for mhz in clocks[1:]:
                lay(root, mhz=mhz)
                watch.sample()
        seen = watch.result()
        assert seen.clock_change == pytest.approx(change)
        assert any("the clock changed by" in words for words in noise_reasons(seen)) is bool(change)


def test_what_is_not_shown_is_unknown(tmp_path: Path) -> None:
    with ConditionsRecorder(root=tmp_path) as watch:
        time.sleep(conditions.SHORTEST_S)
    seen = watch.result()
    for name in ("others_share", "steal_share", "quota_stops", "governor", "clock_mhz", "clock_change", "throttled"):
        assert getattr(seen, name) is None, name
    quiet = replace(seen, pace_change=0.0, preempted_per_s=None)
    assert noise_reasons(quiet) == []


def test_no_share_is_reported_for_a_short_time() -> None:
    with ConditionsRecorder() as watch:
        pass
    seen = watch.result()
    assert seen.seconds < conditions.SHORTEST_S
    assert seen.others_share is seen.steal_share is seen.preempted_per_s is None
    assert seen.pace_ms > 0 and seen.load_before is not None


def test_a_virtual_machines_built_in_clock_is_no_clock(tmp_path: Path) -> None:
    from edgekit.device.hardware.health import fastest_core_mhz

    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("cpu MHz\t\t: 2499.998\nflags\t\t: fpu avx2\n")
    assert fastest_core_mhz(tmp_path) is None
    (tmp_path / "proc/cpuinfo").write_text("cpu MHz\t: 800.0\ncpu MHz\t: 3100.5\nflags\t: fpu aperfmperf\n")
    assert fastest_core_mhz(tmp_path) == 3100.5


def test_noise_is_the_spread_of_the_rounds() -> None:
    p50s_ms = np.array([1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 1.01, 0.99, 1.02, 9.0])  # one round was hit by something
    assert conditions.noise(np.repeat(p50s_ms, 7), 10) == pytest.approx(1.4826 * 0.01 / 1.005, rel=0.6)
    assert conditions.noise(np.repeat(p50s_ms[:9], 7), 9) is None
    assert conditions.noise(np.ones(50), 10) == 0.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, None),
        ({"others_share": 0.31}, "other processes took 31% of the processor's time"),
        ({"steal_share": 0.04}, "the hypervisor withheld 4% of the processor's time"),
        ({"preempted_per_s": 230.0}, "interrupted 230 times a second"),
        ({"quota_stops": 2}, "stopped 2 times by the quota of its cgroup"),
        ({"clock_change": 0.5}, "the clock changed by 50% (around 2,400 MHz)"),
        ({"throttled": True}, "the processor throttled, or was short of voltage"),
        ({"temperature_after_c": 84.0}, "the processor was at 84 °C"),
        ({"temperature_after_c": 79.0}, None),
        ({"pace_change": 0.25}, "the same work took up to 25% longer at times"),
        ({"noise": 0.08}, "the rounds spread by 8%"),
        (dict.fromkeys(("others_share", "steal_share", "preempted_per_s", "quota_stops", "clock_mhz", "clock_change",
                        "throttled", "noise")), None),
    ],
)  # fmt: skip
def test_each_disturbance_is_reported_with_its_figure(change: dict[str, object], words: str | None) -> None:
    assert noise_reasons(replace(QUIET, **change)) == ([words] if words else [])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, None),
        ({"cpu": "Cortex-A72"}, "processor: Cortex-A76 and Cortex-A72"),
        ({"cores": 2}, "cores: 4 and 2"),
        ({"threads": 4}, "threads: 1 and 4"),
        ({"host": "other"}, "host: edge and other"),
        ({"governor": None}, "governor: performance and unknown"),
        ({"emulator": "qemu-aarch64"}, "emulator: unknown and qemu-aarch64"),
        ({"interpreters": {"litert": "2.2.0"}}, "litert: 2.3.0 and 2.2.0"),
        ({"interpreters": {"litert": "2.3.0", "openvino": "2026.4"}}, None),
        ({"calls_per_round": 50}, "calls in a round: 20 and 50"),
        ({"seen": {**QUIET.to_dict(), "pace_ms": 1.3}}, "pace: the same work took 1 ms and 1.3 ms"),
        ({"seen": {**QUIET.to_dict(), "pace_ms": 1.05}}, None),
        ({"disturbed": ["a", "b"]}, "the second measurement was noisy: a; b"),
    ],
)
def test_results_of_other_conditions_are_not_compared(change: dict[str, object], words: str | None) -> None:
    assert differences(RESULT, {**RESULT, **change}) == ([words] if words else [])


def test_a_result_that_says_nothing_of_its_conditions_is_not_compared() -> None:
    old = {name: value for name, value in RESULT.items() if name not in ("seen", "disturbed")}
    assert differences(old, RESULT) == [
        "the first measurement has no record of what else the machine did; measure it again"
    ]
