"""Uploads over real connections: complete, cut or slow, and to devices that refuse them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence

import pytest

from edgekit.fleet.devices import upload
from edgekit.fleet.devices.commands import say_hello
from edgekit.fleet.devices.device_errors import DeviceError, Unreachable
from edgekit.fleet.devices.inventory import Host
from edgekit.fleet.devices.session import DeviceSession
from edgekit.fleet.devices.supply import FileContent, put_file
from tests.fleet.devices import sessions
from tests.fleet.devices.proxy import Proxy
from tests.fleet.devices.rig import Rig, address

pytestmark = pytest.mark.fleet


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def receive(where: Host, data: bytes, offset: int = 0) -> list[int]:
    """Bring a file into the store of a device that has the runner; the offsets that it acknowledged."""
    seen: list[int] = []

    async def work(session: DeviceSession) -> list[int]:
        edgerun, _ = await sessions.supply_runner(session)
        await edgerun.receive(digest(data), data, offset, seen.append)
        return seen

    return sessions.run_session(where, work)


def stored(rig: Rig, number: int, data: bytes) -> bool:
    path = rig.device(number) / ".edge" / "store" / digest(data)
    return path.is_file() and path.read_bytes() == data


def test_a_file_arrives_whole_and_acknowledged(rig: Rig, large: bytes) -> None:
    seen = receive(sessions.host(rig), large)
    assert stored(rig, 0, large)
    assert seen == sorted(seen) and len(seen) > 40 and seen[-1] == len(large)


def test_what_is_there_is_not_sent_again(rig: Rig, large: bytes) -> None:
    data = large[:200_000]
    receive(sessions.host(rig), data)
    with Proxy(address(0), rig.port) as proxy:
        rig.know((address(0), proxy.port))
        receive(sessions.host(rig, port=proxy.port), data)
        assert proxy.received < 100_000


def test_three_megabytes_through_45_cuts_cost_at_most_half_as_many_bytes_again(rig: Rig, large: bytes) -> None:
    receive(sessions.host(rig, 1), b"the runner is there then")
    with Proxy(address(1), rig.port, cut_bytes=66_000, cuts=45) as proxy:
        rig.know((address(1), proxy.port))
        receive(sessions.host(rig, 1, port=proxy.port), large)
        assert stored(rig, 1, large)
        assert proxy.cuts == 45
        assert proxy.received <= 1.5 * len(large), f"{proxy.received / len(large):.2f} times"


def test_the_runner_itself_arrives_over_a_line_that_is_cut(rig: Rig) -> None:
    with Proxy(address(2), rig.port, cut_bytes=120_000, cuts=3) as proxy:
        rig.know((address(2), proxy.port))
        found = sessions.run_session(sessions.host(rig, 2, port=proxy.port), sessions.supply_runner)[1]
        assert found.runner and proxy.cuts == 3


def test_a_connection_that_lets_nothing_through_is_given_up(
    rig: Rig, large: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgekit.fleet.devices.session.PAUSES_S", (0.0, 0.0, 0.0))
    receive(sessions.host(rig), b"the runner is there then")
    with Proxy(address(0), rig.port, cut_bytes=6_000) as proxy:
        rig.know((address(0), proxy.port))
        with pytest.raises(Unreachable, match="gave up after"):
            receive(sessions.host(rig, port=proxy.port), large)
        assert proxy.connections < 12


def test_a_slow_line_takes_its_time_and_no_more_bytes(rig: Rig, large: bytes) -> None:
    receive(sessions.host(rig), b"the runner is there then")
    data = large[:150_000]
    with Proxy(address(0), rig.port, bytes_per_s=80_000) as proxy:
        rig.know((address(0), proxy.port))
        began = time.monotonic()
        receive(sessions.host(rig, port=proxy.port), data)
        assert time.monotonic() - began > 1.5
        assert stored(rig, 0, data) and proxy.received < 1.2 * len(data)


def test_bytes_that_another_push_has_brought_are_kept(rig: Rig, large: bytes) -> None:
    """The device knows better where to go on than who sends."""
    data = large[300_000:500_000]
    receive(sessions.host(rig), b"the runner is there then")
    (rig.device(0) / ".edge" / "incoming" / digest(data)).write_bytes(data[:120_000])
    seen = receive(sessions.host(rig), data)
    assert stored(rig, 0, data) and min(seen) == 120_000


def test_a_file_that_arrives_damaged_is_the_devices_last_word(rig: Rig, large: bytes) -> None:
    data = large[500_000:600_000]
    receive(sessions.host(rig), b"the runner is there then")
    (rig.device(0) / ".edge" / "incoming" / digest(data)).write_bytes(b"x" * 50_000)
    with pytest.raises(DeviceError, match="another digest") as caught:
        receive(sessions.host(rig), data, 50_000)
    assert caught.value.exit_code == 8
    receive(sessions.host(rig), data)
    assert stored(rig, 0, data)


def liar(answers: str) -> upload.Command:
    """A command that says this, whatever it gets."""

    def command(offset: int | None, acknowledge: int) -> Sequence[str]:
        return ["sh", "-c", f"cat >/dev/null; {answers}"]

    return command


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ("""echo '{"offset": 0, "stored": false}'""", "accepts nothing beyond 0 of"),
        ("""echo '{"offset": -5, "stored": false}'""", "accepts nothing beyond"),
        ("""echo '{"offset": 99999999, "stored": true}'""", "accepts nothing beyond"),
        ("""echo '{"offset": "all", "stored": true}'""", "accepts nothing beyond"),
        ("true", "accepts nothing beyond"),
        ("yes", "sends an endless answer"),
        ("echo 'edgerun: no space left' >&2; exit 7", "^no space left$"),
        ("printf 'edgerun: \\033[2Jowned\\r' >&2; exit 7", r"^\[2Jowned$"),
    ],
)
def test_a_device_that_lies_is_believed_nothing(answers: str, message: str, rig: Rig) -> None:
    with pytest.raises(DeviceError, match=message):
        sessions.run_session(
            sessions.host(rig), lambda session: upload.send_file(session, bytes(30_000), liar(answers))
        )


def test_a_home_in_which_others_can_write_is_refused_before_anything_runs_there(rig: Rig) -> None:
    home = rig.device(3) / "open"
    home.mkdir(mode=0o777)
    home.chmod(0o777)

    async def work(session: DeviceSession) -> None:
        found = await say_hello(session, sessions.runner().sha256)
        await put_file(session, found, FileContent(b"data", digest(b"data")), f"{digest(b'data')}.pyz")

    with pytest.raises(DeviceError, match="nobody else can write") as caught:
        sessions.run_session(sessions.host(rig, 3, home=str(home)), work)
    assert caught.value.exit_code == 8 and not list(home.iterdir())


def test_a_device_that_takes_nothing_and_says_nothing_is_given_up(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "STALL_S", 1.0)
    monkeypatch.setattr("edgekit.fleet.devices.session.PAUSES_S", (0.0,))

    def command(offset: int | None, acknowledge: int) -> Sequence[str]:
        return ["echo", '{"offset": 0, "stored": false}'] if offset is None else ["sleep", "60"]

    with pytest.raises(Unreachable, match="gave up after"):
        sessions.run_session(sessions.host(rig), lambda session: upload.send_file(session, bytes(300_000), command))
