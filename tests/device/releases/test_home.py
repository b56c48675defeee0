"""The home that holds the releases, and who may write to it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgekit.device.releases import current_release
from edgekit.device.releases.home import Home, find_home
from edgekit.runner import device_home
from edgekit.runner.errors import TrustError
from tests.device.releases.device import Device

FOLDERS = ("incoming", "store", "releases")


def test_the_option_counts_before_the_variable_and_that_before_the_usual(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setattr(device_home, "SYSTEM_HOME", str(tmp_path / "system"))
    monkeypatch.delenv("EDGERUN_HOME", raising=False)
    assert find_home().root == tmp_path / "user" / ".edge"
    (tmp_path / "system").mkdir()
    assert find_home().root == tmp_path / "system"
    monkeypatch.setenv("EDGERUN_HOME", str(tmp_path / "variable"))
    assert find_home().root == tmp_path / "variable"
    assert find_home(str(tmp_path / "option")).root == tmp_path / "option"


def test_a_new_home_is_this_users_alone_and_nothing_is_made_by_asking(
    empty: Device, valid_bundles: dict[str, Path]
) -> None:
    assert empty.do("status") == f"no release in {empty.root}\n"
    assert not empty.root.exists()
    old = os.umask(0)
    try:
        empty.receive(valid_bundles["1.0.0"])
    finally:
        os.umask(old)
    assert empty.root.stat().st_mode & 0o777 == 0o700
    for path in empty.root.rglob("*"):
        assert not path.stat().st_mode & 0o022, path


def test_an_empty_folder_is_a_home_like_any_other(empty: Device, valid_bundles: dict[str, Path]) -> None:
    """As systemd makes it: every command says that there is nothing, and the first bundle is taken."""
    empty.root.mkdir(mode=0o700)
    for command in ("boot", "confirm", "rollback"):
        assert "no release is current" in empty.refused(4, command)
    assert "removed 0 releases" in empty.do("gc")
    assert empty.status()["state"] == "none"
    assert empty.install(valid_bundles["1.0.0"]) == 1


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777])
def test_a_folder_that_others_can_write_is_refused(mode: int, empty: Device, valid_bundles: dict[str, Path]) -> None:
    empty.confirmed(valid_bundles["1.0.0"])
    empty.root.chmod(mode)
    for command in ("status", "boot", "confirm", "rollback", "gc", "watch") if mode == 0o770 else ("boot",):
        assert "other users can write there" in empty.refused(8, command)
    assert "other users can write there" in empty.refused(8, "receive", "0" * 64)
    assert "other users can write there" in empty.refused(8, "install", "0" * 64)
    empty.root.chmod(0o700)
    empty.do("boot")


def test_a_link_is_refused(empty: Device, valid_bundles: dict[str, Path], tmp_path: Path) -> None:
    empty.confirmed(valid_bundles["1.0.0"])
    (tmp_path / "link").symlink_to(empty.root)
    linked = Device(tmp_path / "link")
    assert "is a link or a file" in linked.refused(8, "boot")
    assert "is a link or a file" in linked.refused(8, "receive", "0" * 64)
    (tmp_path / "file").touch()
    assert "is a link or a file" in Device(tmp_path / "file").refused(8, "status")


def test_a_folder_that_others_can_replace_is_refused(valid_bundles: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    open_to_all = Device(tmp_path / "open" / "home")
    assert f"they can write to {tmp_path / 'open'}" in open_to_all.refused(8, "receive", "0" * 64)
    (tmp_path / "open").chmod(0o1777)
    open_to_all.receive(valid_bundles["1.0.0"])


@pytest.mark.parametrize("name", FOLDERS)
def test_a_link_or_a_folder_that_others_can_write_inside_the_home_is_refused(
    name: str, empty: Device, valid_bundles: dict[str, Path], tmp_path: Path
) -> None:
    """As where the home was made under a umask that lets others write, or somebody moved a folder to another disk."""
    empty.confirmed(valid_bundles["1.0.0"])
    folder = empty.root / name
    for mode in (0o770, 0o707, 0o1777):
        folder.chmod(mode)
        for command in ("status", "boot", "watch", "gc") if mode == 0o770 else ("boot",):
            assert f"{folder}: other users can write there" in empty.refused(8, command)
        assert f"`chmod 700 {folder}`" in empty.refused(8, "receive", "0" * 64)
        with pytest.raises(TrustError, match="other users can write there"):
            current_release.find_release(Home(empty.root))
    folder.chmod(0o700)
    empty.do("boot")
    folder.rename(tmp_path / "elsewhere")
    for end in (tmp_path / "elsewhere", tmp_path / "nowhere"):
        folder.symlink_to(end)
        assert f"{folder}: is a link or a file" in empty.refused(8, "boot")
        assert f"{folder}: is a link or a file" in empty.refused(8, "receive", "0" * 64)
        folder.unlink()
    (tmp_path / "elsewhere").rename(folder)
    empty.do("boot")


@pytest.mark.needs(root=True)
@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_of_another_user_inside_the_home_is_refused(
    name: str, empty: Device, valid_bundles: dict[str, Path]
) -> None:
    empty.confirmed(valid_bundles["1.0.0"])
    os.chown(empty.root / name, 12345, 12345)
    assert f"{empty.root / name}: belongs to user 12345, but this is user 0" in empty.refused(8, "boot")


@pytest.mark.needs(root=True)
def test_a_folder_of_another_user_is_refused(empty: Device, valid_bundles: dict[str, Path]) -> None:
    empty.confirmed(valid_bundles["1.0.0"])
    os.chown(empty.root, 12345, 12345)
    assert "belongs to user 12345, but this is user 0; run as its owner" in empty.refused(8, "status")
    with pytest.raises(TrustError), Home(empty.root).locked():
        pass
