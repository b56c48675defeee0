from __future__ import annotations

import io
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from edgekit.runner import bundle
from edgekit.runner.bundle import archive
from edgekit.runner.errors import BundleError, TrustError
from tests.runner.conftest import NCHW, SCORES, ModelFiles, manifest_for

MODEL = ModelFiles("onnx", {"model.onnx": bytes(range(64))}, NCHW, SCORES, 1e-4)
MEMBERS = {**MODEL.files, "golden/inputs.npy": b"in", "golden/outputs.npy": b"out", "README.md": b"read me\n"}
SHA256 = "5d208925cbeade286adea43f16915027a0035ca9c108312049f47eff4ec8402d"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "tiny-onnx-1.2.0.edge.zip"
    bundle.write(path, manifest_for(MODEL), MEMBERS)
    return path


def test_what_was_written_is_read(path: Path) -> None:
    found = bundle.read(path)
    assert found.members == MEMBERS
    assert found.model_files() == MODEL.files
    assert found.manifest.labels == manifest_for(MODEL).labels
    assert found.manifest.members["README.md"]["bytes"] == 8


def test_the_bytes_are_pinned(path: Path, tmp_path: Path) -> None:
    """The same on every Python and whatever the order: two builds give one digest."""
    again = tmp_path / "again.edge.zip"
    sha256 = bundle.write(again, manifest_for(MODEL), dict(reversed(MEMBERS.items())))
    assert again.read_bytes() == path.read_bytes()
    assert sha256 == bundle.read(path).sha256 == SHA256


@pytest.mark.parametrize("command", ["doctor", "verify", "info"])
def test_a_bundle_is_read_where_numpy_does_not_import(path: Path, command: str) -> None:
    """The doctor must say what is wrong there, so no module that reads a bundle may import numpy."""
    script = (
        "import sys\nsys.modules['numpy'] = None\nfrom edgekit.runner.cli import main\n"
        f"main([{command!r}, {str(path)!r}])"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr and "numpy" not in done.stderr


def test_any_zip_tool_can_list_it(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist() == ["manifest.json", *sorted(MEMBERS)]
        assert archive.testzip() is None
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_every_truncation_and_every_extension_is_refused(path: Path) -> None:
    good = path.read_bytes()
    for length in range(0, len(good), 13):
        path.write_bytes(good[:length])
        with pytest.raises((BundleError, TrustError)):
            bundle.read(path)
    for more in (good + b"\0", b"#!/bin/sh\n" + good, good + good):
        path.write_bytes(more)
        with pytest.raises((BundleError, TrustError)):
            bundle.read(path)


Entries = list[tuple[zipfile.ZipInfo, bytes]]


def repack(path: Path, change: Callable[[Entries], Entries], compression: int = zipfile.ZIP_STORED) -> None:
    """Write the archive anew with valid checksums, as somebody would who knows zip files."""
    with zipfile.ZipFile(path) as archive:
        entries = [(entry, archive.read(entry)) for entry in archive.infolist()]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for entry, data in change(entries):
            entry.compress_type = compression
            archive.writestr(entry, data)
    path.write_bytes(buffer.getvalue())


def like(entry: zipfile.ZipInfo, name: str, attributes: int | None = None) -> zipfile.ZipInfo:
    made = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    made.create_system, made.external_attr = 3, entry.external_attr if attributes is None else attributes
    return made


def changed(name: str, data: bytes) -> Callable[[Entries], Entries]:
    return lambda entries: [(entry, data if entry.filename == name else old) for entry, old in entries]


def added(name: str, attributes: int | None = None) -> Callable[[Entries], Entries]:
    return lambda entries: [*entries, (like(entries[0][0], name, attributes), b"intruder")]


def without(name: str) -> Callable[[Entries], Entries]:
    return lambda entries: [(entry, data) for entry, data in entries if entry.filename != name]


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("change", "name"),
    [
        (changed("model.onnx", bytes(64)), "model.onnx"),
        (changed("model.onnx", bytes(range(64)) + b"x"), "model.onnx"),
        (changed("golden/outputs.npy", b"0ut"), "golden/outputs.npy"),
        (changed("README.md", b"eat me!\n"), "README.md"),
        (without("README.md"), "README.md"),
        (without("model.onnx"), "model.onnx"),
        (added("extra.py"), "extra.py"),
        (added("model.onnx"), "model.onnx"),
        (added("manifest.json"), "manifest.json"),
        (added("/etc/cron.d/x"), "/etc/cron.d/x"),
        (added("../x"), "../x"),
        (added("a/../../x"), "a/../../x"),
        (added("C:/x"), "C:/x"),
        (added(".hidden"), ".hidden"),
        (added("folder/", 0o040755 << 16), "folder/"),
        (added("link", 0o120777 << 16), "link"),
    ],
)
def test_a_changed_archive_is_refused_by_the_members_name(
    path: Path, change: Callable[[Entries], Entries], name: str
) -> None:
    repack(path, change)
    with pytest.raises(TrustError) as caught:
        bundle.read(path)
    assert name in str(caught.value)
    assert caught.value.exit_code == 8


def test_a_listed_member_that_became_a_link_is_refused(path: Path) -> None:
    def link(entries: Entries) -> Entries:
        return [(like(e, e.filename, 0o120777 << 16) if e.filename == "README.md" else e, d) for e, d in entries]

    repack(path, link)
    with pytest.raises(TrustError, match=r"README\.md"):
        bundle.read(path)


def test_a_bomb_is_not_inflated(path: Path) -> None:
    repack(path, changed("model.onnx", bytes(50_000_000)), compression=zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 100_000
    with pytest.raises(TrustError, match=r"manifest\.json|model\.onnx"):
        bundle.read(path)


def test_the_same_members_packed_otherwise_are_refused(path: Path) -> None:
    repack(path, lambda entries: [entries[0], *reversed(entries[1:])])
    with pytest.raises(TrustError, match="not sorted"):
        bundle.read(path)
    bundle.write(path, manifest_for(MODEL), MEMBERS)
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = b"hidden words"
    with pytest.raises(TrustError):
        bundle.read(path)


def test_a_manifest_spelled_otherwise_is_refused(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        text = archive.read("manifest.json")
    repack(path, changed("manifest.json", text.replace(b"\n", b"")))
    with pytest.raises(TrustError, match=r"manifest\.json"):
        bundle.read(path)


def test_a_newer_format_says_so(path: Path) -> None:
    repack(path, changed("manifest.json", b'{"format": 99}\n'))
    with pytest.raises(BundleError, match="update the runner"):
        bundle.read(path)


@pytest.mark.parametrize("data", [b"", b"PK", b"not a zip at all", b"PK\x05\x06" + bytes(18)])
def test_what_is_no_bundle_is_refused(tmp_path: Path, data: bytes) -> None:
    other = tmp_path / "other.edge.zip"
    other.write_bytes(data)
    with pytest.raises(BundleError, match="not a bundle"):
        bundle.read(other)


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="No such file"):
        bundle.read(tmp_path / "nowhere.edge.zip")
    with pytest.raises(BundleError, match="directory"):
        bundle.read(tmp_path)


def test_a_bad_manifest_leaves_the_earlier_bundle_alone(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(BundleError, match="labels"):
        bundle.write(path, manifest_for(MODEL, labels=["one"]), MEMBERS)
    with pytest.raises(BundleError, match=r"model\.onnx"):
        bundle.write(path, manifest_for(MODEL), {"README.md": b""})
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_reading_writes_nothing(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bundle.read(path)
    assert os.listdir(tmp_path) == [path.name]


def test_an_archive_of_very_many_members_is_refused_in_time() -> None:
    """60,000 took ten seconds: each member copied the directory of all before it."""
    members = {"manifest.json": b"{}", **{f"m{number:05}": b"" for number in range(60_000)}}
    data = b"".join(archive.archive_parts(members))
    began = time.process_time()
    with pytest.raises(BundleError):
        bundle.read_bytes(data)
    assert time.process_time() - began < 3
