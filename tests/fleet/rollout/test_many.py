"""A push to forty devices, half of which cannot be reached."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.devices.rig import Rig, need_rig
from tests.fleet.rollout.conftest import Fleet

pytestmark = pytest.mark.fleet

COUNT = 40


@pytest.fixture
def forty(tmp_path: Path, bundles: dict[str, Path]) -> Iterator[Fleet]:
    need_rig()
    with Rig(tmp_path / "rig", COUNT) as rig:
        yield Fleet(rig, rig.inventory(), bundles)


def test_half_of_forty_is_dead_and_a_second_push_brings_it_to_the_rest_alone(forty: Fleet) -> None:
    rig, bundle = forty.rig, forty.bundles["1.0.0"]
    rig.stop_devices()
    rig.start_devices(range(COUNT // 2))
    found = forty.states(7, "push", bundle, "--send-only")
    assert found == ["sent"] * 20 + ["unreachable"] * 20
    rig.start_devices(range(COUNT // 2, COUNT))
    calls = [(rig.device(number) / ".calls").stat().st_size for number in range(20)]
    inodes = [path.stat().st_ino for path in stored(forty)]
    assert forty.states(0, "push", bundle, "--send-only") == ["sent"] * COUNT
    round_trips = [(rig.device(number) / ".calls").stat().st_size - calls[number] for number in range(20)]
    assert round_trips == [1] * 20, "one question, and nothing is brought"
    assert len(stored(forty)) == COUNT and [path.stat().st_ino for path in stored(forty)][:20] == inodes


def stored(fleet: Fleet) -> list[Path]:
    """The bundles that lie on devices, in their order."""
    return [path for number in range(COUNT) for path in (fleet.rig.device(number) / ".edge" / "store").glob("*")]
