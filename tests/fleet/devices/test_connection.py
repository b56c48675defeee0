"""Connections to a real sshd: host keys, the user's config and agent, jump hosts, and what a device may answer."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit.core.errors import ConfigError
from edgekit.fleet.devices.connection import MOST_BYTES, CommandResult, Network
from edgekit.fleet.devices.device_errors import ConnectionCut, DeviceError, HostKeyError, LoginRefused, Unreachable
from edgekit.fleet.devices.inventory import Host
from tests import requirements
from tests.fleet.devices.proxy import Proxy
from tests.fleet.devices.rig import Rig, address, make_key


def host(rig: Rig, number: int = 0, **changes: object) -> Host:
    values: dict[str, object] = {"host": address(number), "port": rig.port, "user": rig.user, **changes}
    return Host(f"d{number}", "box", **values)  # type: ignore[arg-type]


def run(where: Host, *words: str, data: bytes = b"", connect_s: float = 20.0, within_s: float = 30.0) -> CommandResult:
    async def ask() -> CommandResult:
        async with Network(connect_s).connection(where) as connection:
            return await connection.run(words, data, within_s)

    return asyncio.run(ask())


@pytest.fixture
def known(rig: Rig) -> Iterator[Path]:
    """known_hosts, which is put right behind the test."""
    path = rig.ssh / "known_hosts"
    before = path.read_bytes()
    yield path
    path.write_bytes(before)


@pytest.fixture
def config(rig: Rig) -> Iterator[Path]:
    """~/.ssh/config, removed behind the test."""
    yield rig.ssh / "config"
    (rig.ssh / "config").unlink(missing_ok=True)


def test_words_arrive_as_they_are_whatever_a_shell_would_make_of_them(rig: Rig) -> None:
    words = ["a b", "$HOME", "`id`", "'", '"', "\\", "*", "ä\n", "", ";true"]
    answer = run(host(rig), "python3", "-c", "import sys; print(sys.argv[1:])", *words)
    assert answer.code == 0 and eval(answer.stdout) == words
    assert run(host(rig), "cat", data=bytes(range(256)) * 1000).stdout == bytes(range(256)) * 1000


def test_each_address_is_a_device_with_a_home_of_its_own(rig: Rig) -> None:
    homes = [run(host(rig, number), "pwd").stdout.decode().strip() for number in (0, 1)]
    assert homes == [str(rig.device(0)), str(rig.device(1))]
    assert run(host(rig), "ls", "~/nothing").code == 2


def test_an_exit_code_and_the_last_line_come_back(rig: Rig) -> None:
    answer = run(host(rig), "sh", "-c", "echo out; echo 'edgerun: wrong' >&2; exit 5")
    assert (answer.code, answer.stdout) == (5, b"out\n")
    with pytest.raises(DeviceError, match="^wrong$") as caught:
        answer.check()
    assert caught.value.exit_code == 5
    assert run(host(rig), "sh", "-c", "kill -9 $$").code >= 128


def test_a_host_key_that_nobody_knows_is_refused_with_its_fingerprint(rig: Rig, known: Path) -> None:
    rig.forget(0)
    with pytest.raises(HostKeyError, match="is not known; connect once with `ssh -p") as caught:
        run(host(rig), "true")
    printed = subprocess.run(["ssh-keygen", "-l", "-f", str(rig.host_key)], capture_output=True, text=True).stdout
    assert printed.split()[1] in str(caught.value) and caught.value.exit_code == 8
    known.unlink()
    with pytest.raises(HostKeyError, match="is not known"):
        run(host(rig), "true")


def test_another_host_key_than_the_known_one_is_refused(rig: Rig, known: Path, tmp_path: Path) -> None:
    rig.forget(0)
    rig.know((address(0), rig.port), key=make_key(tmp_path / "other"))
    with pytest.raises(HostKeyError, match="not the one in known_hosts") as caught:
        run(host(rig), "true")
    assert f"ssh-keygen -R '[{address(0)}]:{rig.port}'" in str(caught.value)
    rig.forget(0)
    rig.know((address(0), rig.port), key=make_key(tmp_path / "ecdsa", "ecdsa"))
    with pytest.raises(HostKeyError, match="not the one in known_hosts"):
        run(host(rig), "true")


@pytest.mark.parametrize(
    "line", ["UserKnownHostsFile none", "UserKnownHostsFile /dev/null", "StrictHostKeyChecking no"]
)
def test_no_line_of_the_config_switches_the_check_off(rig: Rig, known: Path, config: Path, line: str) -> None:
    config.write_text(f"{line}\n")
    rig.forget(0)
    with pytest.raises(HostKeyError):
        run(host(rig), "true")


def test_hashed_names_and_other_files_of_known_hosts_are_read(rig: Rig, known: Path, config: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(known)], check=True, capture_output=True)
    assert address(0) not in known.read_text()
    assert run(host(rig), "true").code == 0
    known.rename(rig.home / "theirs")
    config.write_text(f"Host *\n  UserKnownHostsFile {rig.home / 'theirs'}\n")
    assert run(host(rig), "true").code == 0
    shutil.move(rig.home / "theirs", known)


def test_a_name_of_the_config_is_resolved_with_its_user_port_and_key(rig: Rig, config: Path) -> None:
    config.write_text(f"Host door\n  HostName {address(1)}\n  Port {rig.port}\n  User {rig.user}\n")
    assert run(Host("door", host="door"), "pwd").stdout.decode().strip() == str(rig.device(1))
    config.write_text("Host door\n  Port none\n")
    with pytest.raises(ConfigError, match="config"):
        run(Host("door", host="door"), "true")


def test_a_jump_host_is_gone_through(rig: Rig, config: Path) -> None:
    jump = f"{rig.user}@{address(2)}:{rig.port}"
    config.write_text(f"Host {address(1)}\n  ProxyJump {jump}\n")
    seen = run(host(rig, 1), "sh", "-c", "echo $SSH_CONNECTION").stdout.decode().split()
    assert seen[2] == address(1)
    rig.forget(2)
    try:
        with pytest.raises(HostKeyError):
            run(host(rig, 1), "true")
    finally:
        rig.know((address(2), rig.port))


def test_a_key_that_only_an_agent_has_is_enough(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    key, aside = rig.ssh / "id_ed25519", rig.home / "aside"
    started = subprocess.run(
        [requirements.program("ssh-agent"), "-s"], capture_output=True, text=True, check=True
    ).stdout
    values = dict(part.split("=", 1) for part in started.split(";") if "=" in part)
    values = {name.strip(): value for name, value in values.items()}
    try:
        agent = {**os.environ, "SSH_AUTH_SOCK": values["SSH_AUTH_SOCK"]}
        subprocess.run(["ssh-add", "-q", str(key)], env=agent, check=True)
        key.rename(aside)
        with pytest.raises(LoginRefused, match="ssh-copy-id"):
            run(host(rig), "true")
        monkeypatch.setenv("SSH_AUTH_SOCK", values["SSH_AUTH_SOCK"])
        assert run(host(rig), "true").code == 0
    finally:
        if aside.exists():
            aside.rename(key)
        os.kill(int(values["SSH_AGENT_PID"]), 15)


def test_nobody_there_and_nobody_who_answers_are_unreachable(rig: Rig) -> None:
    with socket.create_server(("127.1.9.9", 0)) as mute:
        for port, message in (
            (mute.getsockname()[1], "the login was not completed within 1 s"),
            (1, "Connect call failed|refused"),
        ):
            with pytest.raises(Unreachable, match=message):
                run(host(rig, host="127.1.9.9", port=port), "true", connect_s=1.0)
    with pytest.raises(Unreachable):
        run(host(rig, host="nowhere.invalid"), "true")


def test_a_line_that_is_cut_is_no_end_of_the_command(rig: Rig) -> None:
    """asyncssh gives no exit code then, and raises nothing."""
    with Proxy(address(0), rig.port, cut_bytes=20_000) as proxy:
        rig.know((address(0), proxy.port))
        with pytest.raises(ConnectionCut):
            run(host(rig, port=proxy.port), "cat", data=bytes(100_000))


def test_a_command_that_never_ends_is_given_up(rig: Rig) -> None:
    began = time.monotonic()
    with pytest.raises(Unreachable, match="no answer within 1 s") as caught:
        run(host(rig), "sleep", "60", within_s=1.0)
    assert not isinstance(caught.value, ConnectionCut), "the command would be sent again"
    assert time.monotonic() - began < 20


def test_an_answer_without_end_is_not_read_to_its_end(rig: Rig) -> None:
    with pytest.raises(DeviceError, match=f"more than {MOST_BYTES:,} bytes"):
        run(host(rig), "sh", "-c", "yes")


@pytest.mark.parametrize(
    "greeting",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"SSH-2.0-\x1b[2J\r\n" + bytes(range(256)) * 200,
        b"SSH-2.0-x\r\n" + b"\xff" * 40_000,
        b"SSH-2.0-x\r\n\x00\x00\x00\x0c\x0a\x14" + bytes(10),
        b"SSH-1.5-old\r\n",
        b"x" * 300_000,
    ],
    ids=["http", "bytes", "ones", "kexinit", "old", "endless"],
)
def test_what_is_no_ssh_is_one_line_and_harms_nobody_else(
    greeting: bytes, rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.1.9.9", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = server.accept()
                    with client, contextlib.suppress(OSError):
                        client.sendall(greeting)
                        client.recv(100_000)

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises((Unreachable, LoginRefused, HostKeyError)) as caught:
            run(host(rig, host="127.1.9.9", port=server.getsockname()[1]), "true", connect_s=5.0)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 400
    assert not caplog.records
