from __future__ import annotations

import stat
import zipfile

import pytest

from edgekit.core.errors import DataError
from tests.data.pictures import picture, read, samples, zipped


@pytest.mark.parametrize("name", ["/train/bee/x.png", "../x.png", "train/../../x.png", "C:/x.png", "train\\bee\\x.png"])
def test_members_that_point_outside_are_refused(tmp_path, name):
    before = set(tmp_path.parent.rglob("x.png"))
    with pytest.raises(DataError, match=r"pictures\.zip: member .* points outside"):
        read(zipped(tmp_path, samples() | {name: picture(1)}))
    assert set(tmp_path.parent.rglob("x.png")) == before


def test_links_in_a_zip_are_refused(tmp_path):
    path = zipped(tmp_path, samples())
    info = zipfile.ZipInfo("train/bee/link.png")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(info, "/etc/hostname")
    with pytest.raises(DataError, match=r"'train/bee/link\.png' is a symbolic link"):
        read(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_members_that_appear_twice_are_refused(tmp_path):
    path = zipped(tmp_path, samples())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("train/bee/000.png", picture(99))
    with pytest.raises(DataError, match=r"'train/bee/000\.png' appears twice"):
        read(path)


def test_encrypted_members_are_refused(tmp_path):
    path = zipped(tmp_path, samples())
    data = bytearray(path.read_bytes())
    data[data.rindex(b"PK\x01\x02") + 8] |= 1  # general purpose flag of the last member in the central directory
    path.write_bytes(data)
    with pytest.raises(DataError, match="is encrypted"):
        read(path)


def test_a_member_that_blows_up_is_not_unpacked(tmp_path):
    path = zipped(tmp_path, samples() | {"train/bee/bomb.png": bytes(300 << 20)})
    assert "unpacks to 314572800 bytes" in read(path, max_corrupt_fraction=0.05).notes[0]


@pytest.mark.parametrize("size", [0, 50, 3000])
def test_a_truncated_zip_is_refused(tmp_path, size):
    path = zipped(tmp_path, samples())
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(DataError, match=r"pictures\.zip: neither a folder nor a readable zip"):
        read(path)
