"""What others must not see: files that only their owner may read, in no command line, the same for all workers."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from edgekit.device.commands.serve import Settings
from edgekit.runner.cli import main
from edgekit.runner.errors import InputError
from edgekit.serve.handover import Secrets, hand_over, read_handover, read_redis, read_tokens
from tests.serve.conftest import Start
from tests.serve.server import INFER, RAW, Server
from tests.serve.test_lifecycle import wait_for

TOKEN, LATER = "a-token-of-some-length", "another-token-of-length"
PASSWORD = "hush-hush-hush"
URL = f"redis://user:{PASSWORD}@127.0.0.1:1"


def private(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_file_that_its_owner_alone_may_read_is_taken(tmp_path: Path, mode: int) -> None:
    assert read_tokens(str(private(tmp_path / "tokens", f"# mine\n{TOKEN}\n", mode))) == (TOKEN,)
    assert read_redis(str(private(tmp_path / "redis", f"{URL}\n", mode))) == URL


@pytest.mark.parametrize("mode", [bits << place | 0o600 for bits in range(1, 8) for place in (0, 3)])
def test_a_file_that_anybody_else_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    for read, text in ((read_tokens, TOKEN), (read_redis, URL)):
        with pytest.raises(InputError, match="chmod 600") as caught:
            read(str(private(tmp_path / "secret", text, mode)))
        assert text not in str(caught.value)


def test_a_credential_of_systemd_is_taken_with_the_mode_that_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = private(tmp_path / "token", TOKEN, 0o440)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert read_tokens(str(path)) == (TOKEN,)
    path.chmod(0o444)
    with pytest.raises(InputError, match="chmod 600"):
        read_tokens(str(path))


@pytest.mark.parametrize("byte", ["\0", "\x1b", "\x7f", "\t", "ü"])
def test_a_token_is_what_a_header_can_hold(tmp_path: Path, byte: str) -> None:
    with pytest.raises(InputError, match="plain ASCII"):
        read_tokens(str(private(tmp_path / "tokens", f"{TOKEN}{byte}{TOKEN}")))


@pytest.mark.parametrize("text", ["", PASSWORD, f"http://:{PASSWORD}@host", "\xff\0"])
def test_a_file_that_holds_no_redis_is_refused_without_repeating_it(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="holds no URL") as caught:
        read_redis(str(private(tmp_path / "redis", text)))
    assert PASSWORD not in str(caught.value)


def test_what_is_handed_to_a_worker_cannot_be_changed_and_is_read_by_each(tmp_path: Path) -> None:
    settings = Settings((), token_file=str(private(tmp_path / "tokens", TOKEN)), cache_redis="redis://127.0.0.1")
    secrets = Secrets.read(settings)
    descriptor = hand_over(settings, secrets)
    try:
        assert read_handover(descriptor) == read_handover(descriptor) == (settings, secrets)
        with pytest.raises(PermissionError):
            os.pwrite(descriptor, b"x", 0)
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("url", [URL, "redis://:x@127.0.0.1", "unix://:x@/run/redis.sock", "rediss://user@store"])
def test_a_password_on_the_command_line_is_refused_and_not_repeated(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", "x.edge.zip", "--cache-mb", "1", "--cache-redis", url])
    assert ended.value.code == 2
    assert "file that only you may read" in (stderr := " ".join(capsys.readouterr().err.split()))
    assert url not in stderr


def processes(server: Server) -> list[int]:
    return [server.process.pid, *server.workers]


@pytest.mark.processes
def test_no_command_line_or_environment_of_a_server_holds_a_password_or_its_settings(
    start: Start, bundles: dict[str, Path], tmp_path: Path
) -> None:
    pytest.importorskip("redis")
    files = {"--token-file": private(tmp_path / "tokens", TOKEN), "--cache-redis": private(tmp_path / "redis", URL)}
    options = [each for pair in files.items() for each in pair]
    server = start(bundles["onnx"], "--workers", 2, "--cache-mb", 1, *options)
    assert len(processes(server)) == 3
    for process in processes(server):
        for part in ("cmdline", "environ"):
            shown = Path(f"/proc/{process}/{part}").read_bytes()
            assert PASSWORD.encode() not in shown and TOKEN.encode() not in shown
            assert b"cache_redis" not in shown  # nor any other setting
    assert PASSWORD not in server.log_text()
    assert "Redis at 127.0.0.1:1 does not answer" in server.log_text()


@pytest.mark.processes
def test_a_worker_that_is_started_again_knows_the_tokens_of_the_others(
    start: Start, bundles: dict[str, Path], tmp_path: Path
) -> None:
    path = private(tmp_path / "tokens", TOKEN)
    server = start(bundles["onnx"], "--workers", 2, "--token-file", path)
    before = set(server.workers)
    private(path, LATER)
    os.kill(min(before), signal.SIGKILL)
    wait_for(lambda: len(server.workers) == 2 and min(before) not in server.workers)
    wait_for(lambda: "worker 0 ended" in server.log_text() or "worker 1 ended" in server.log_text())
    path.unlink()
    for token, status in ((TOKEN, 200), (LATER, 401)):
        given = {**RAW, "Authorization": f"Bearer {token}"}
        assert {server.post(INFER, bytes(64), given).status for _ in range(40)} == {status}
