"""Archives by the ten thousand: none is taken but the one spelling of a bundle, and nothing is written anywhere."""

from __future__ import annotations

import io
import os
import random
import resource
import sys
import tracemalloc
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgekit.runner import bundle, load
from edgekit.runner.bundle import archive
from edgekit.runner.bundle.manifest import FORMAT
from edgekit.runner.cli import main
from edgekit.runner.errors import BundleError, TrustError
from tests.runner import zips
from tests.runner.conftest import NCHW, SCORES, ModelFiles, WriteBundle, manifest_for, onnx_model
from tests.runner.zips import MUTATIONS, Entry, pack, unpack

pytestmark = pytest.mark.processes

MODEL = ModelFiles("onnx", {"model.onnx": bytes(range(40))}, NCHW, SCORES, 1e-4)
MEMBERS = {**MODEL.files, "golden/inputs.npy": b"in", "golden/outputs.npy": b"out", "README.md": b"read me\n"}
CASES = 1500
"""Of each kind of mutation; there are 21."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
DEEDS = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.truncate")
DEEDS += ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "socket.connect", "shutil.", "tempfile.")

_watched: dict[str, Any] = {"on": False, "seen": [], "hooked": False}


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watched["on"]:
        return
    if (event == "open" and arguments[2] & WRITING) or event.startswith(DEEDS):
        _watched["seen"].append((event, arguments))


@pytest.fixture
def nothing_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails where anything is opened for writing, made, moved, removed or started; or lies there afterwards."""
    if not _watched["hooked"]:
        sys.addaudithook(_hook)  # for good: Python has no way to take it back
        _watched["hooked"] = True
    inside = tmp_path / "a" / "b" / "c"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    refusal(b"PK\3\4")  # what it imports on the way is compiled now
    before = sorted(tmp_path.rglob("*"))
    _watched.update(on=True, seen=[])
    try:
        yield
    finally:
        _watched["on"] = False
    assert _watched["seen"] == []
    assert sorted(tmp_path.rglob("*")) == before


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("good") / "tiny.edge.zip"
    bundle.write(path, manifest_for(MODEL), MEMBERS)
    return path.read_bytes()


def refusal(data: bytes) -> str:
    """Return the error of an archive that is refused. Any other error, or none, fails the test."""
    try:
        found = bundle.read_bytes(data)
    except (BundleError, TrustError) as error:
        text = str(error)
        assert text.isprintable(), text
        return text
    raise AssertionError(f"taken: {found.manifest.name}, {sorted(found.members)}, {data!r}")


def test_the_good_one_is_taken_and_the_other_packer_makes_the_same(good: bytes) -> None:
    assert bundle.read_bytes(good).members == MEMBERS
    assert pack(unpack(good)) == good


@pytest.mark.usefixtures("nothing_is_done")
def test_every_flipped_bit_is_refused(good: bytes) -> None:
    bad = bytearray(good)
    for position in range(len(good)):
        for bit in range(8):
            bad[position] ^= 1 << bit
            refusal(bytes(bad))
            bad[position] ^= 1 << bit


@pytest.mark.usefixtures("nothing_is_done")
def test_every_truncation_is_refused(good: bytes) -> None:
    for length in range(len(good)):
        refusal(good[:length])
        refusal(good[length + 1 :])


@pytest.mark.usefixtures("nothing_is_done")
@pytest.mark.parametrize("kind", MUTATIONS)
def test_mutated_archives_are_refused(kind: str, good: bytes) -> None:
    generator = random.Random(f"edgekit {kind}")
    changed = [MUTATIONS[kind](generator, good) for _ in range(CASES)]
    real = {data for data in changed if data != good}
    assert len(real) > 10
    assert len([data for data in changed if data != good]) > CASES * 0.6
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for data in real:
        refusal(data)
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kb < 64 * 1024


def test_files_are_refused_as_bytes_are(good: bytes, tmp_path: Path) -> None:
    generator = random.Random(4)
    path = tmp_path / "mutant.edge.zip"
    for kind in MUTATIONS:
        for _ in range(5):
            data = MUTATIONS[kind](generator, good)
            path.write_bytes(data)
            if data != good:
                with pytest.raises((BundleError, TrustError)) as caught:
                    bundle.read(path)
                with pytest.raises(type(caught.value)):
                    bundle.read_bytes(data)
    assert os.listdir(tmp_path) == [path.name]


def test_a_duplicate_that_is_not_counted_is_refused(good: bytes) -> None:
    """Everything the manifest lists is there, and right: but another tool might take the first of the two."""
    entries = unpack(good)
    for place in range(1, len(entries)):
        twin = replace(entries[place], data=b"another")
        double = [*entries[:place], twin, *entries[place:]]
        refusal(pack(double))
        refusal(pack(double, here=len(entries), total=len(entries)))


def bomb(size: int) -> bytes:
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
    piece = bytes(2**20)
    return b"".join(squeeze.compress(piece) for _ in range(size // len(piece))) + squeeze.flush()


@pytest.mark.parametrize("name", ["manifest.json", "model.onnx"])
def test_a_bomb_takes_no_memory(name: str, good: bytes) -> None:
    """300 MB in 300 kB; its size stated correctly, or understated so that it looks like the member it replaces."""
    data, size = bomb(300 * 2**20), 300 * 2**20
    entries = unpack(good)
    for stated_size in (size, 40, 2**32 - 1):
        packed = [
            replace(each, data=data).both(method=8, size=stated_size, crc=0) if each.name == name.encode() else each
            for each in entries
        ]
        mutant = pack(packed)
        tracemalloc.start()
        refusal(mutant)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 12 * 2**20


def test_sizes_that_are_not_there_take_no_memory(good: bytes, tmp_path: Path) -> None:
    """From a file, whose `read` would set aside what a header asks for: up to 4 GB."""
    generator, path = random.Random(5), tmp_path / "mutant.edge.zip"
    tracemalloc.start()
    for kind in (zips.huge, zips.wide, zips.header):
        for _ in range(200):
            path.write_bytes(kind(generator, good))
            if path.read_bytes() != good:
                with pytest.raises((BundleError, TrustError)):
                    bundle.read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 * 2**20


def some_members(generator: random.Random) -> dict[str, bytes]:
    """Names that a manifest allows, in any order, with any content."""
    letters = "abcXYZ019._-"
    made = {}
    for _ in range(generator.randrange(7)):
        parts = [
            generator.choice("aZ9") + "".join(generator.choices(letters, k=generator.randrange(9)))
            for _ in range(generator.randint(1, 3))
        ]
        made["/".join(parts)] = generator.randbytes(generator.choice((0, 1, 7, 300)))
    return made


def zipped(members: dict[str, bytes]) -> bytes:
    """What Python's own `zipfile` makes of them."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as made:
        for name, data in members.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.create_system, entry.external_attr = 3, 0o100644 << 16
            made.writestr(entry, data)
    return stream.getvalue()


def test_archives_are_byte_by_byte_those_of_zipfile() -> None:
    generator = random.Random(6)
    for _ in range(400):
        members = some_members(generator)
        data = b"".join(archive.archive_parts(members))
        assert data == zipped(members) == pack([Entry(name.encode(), each) for name, each in members.items()])
        assert list(archive.read(io.BytesIO(data)).items()) == list(members.items())


def test_whatever_the_archive_reader_takes_is_spelled_as_it_would_write_it() -> None:
    """The reader by itself, without a manifest to hold the members against."""
    generator, taken = random.Random(7), 0
    for _ in range(60):
        members = {"first": b"1", **some_members(generator)}
        data = b"".join(archive.archive_parts(members))
        for _ in range(100):
            mutant = generator.choice(list(MUTATIONS.values()))(generator, data)
            try:
                found = archive.read(io.BytesIO(mutant))
            except archive.BadArchive:
                continue
            assert b"".join(archive.archive_parts(found)) == mutant
            taken += 1
    assert taken > 100


def test_whatever_is_taken_as_a_bundle_is_its_one_spelling(tmp_path: Path) -> None:
    """Sound bundles of random content, packed again by `zipfile` in some other way."""
    generator, path = random.Random(8), tmp_path / "made.edge.zip"
    for _ in range(150):
        members = {**some_members(generator), **MEMBERS}
        bundle.write(path, manifest_for(MODEL, version=f"1.0.{generator.randrange(99)}"), members)
        good = path.read_bytes()
        entries = {each.name.decode(): each.data for each in unpack(good)}
        assert bundle.read_bytes(zipped(entries)).members == members
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", generator.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as other:
            for name, data in entries.items():
                year = generator.choice((1980, 1980, 1980, 2024))
                entry = zipfile.ZipInfo(name, (year, 1, 1, 0, 0, 0))
                entry.create_system = 3
                entry.external_attr = generator.choice((0o100644, 0o100644, 0o100600)) << 16
                entry.compress_type = other.compression
                other.writestr(entry, data)
            other.comment = generator.choice((b"", b"", b"!"))
        if stream.getvalue() != good:
            refusal(stream.getvalue())


@pytest.mark.parametrize("packing", ["as now", "deflated", "a comment", "other order", "more members", "other dates"])
def test_a_newer_format_asks_for_a_newer_runner_however_it_is_packed(packing: str, good: bytes) -> None:
    entries = unpack(good)
    entries[0].data = b'{"format": %d, "something": ["new"]}\n' % (FORMAT + 1)
    words = b""
    if packing == "deflated":
        for place, entry in enumerate(entries):
            squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
            packed = squeeze.compress(entry.data) + squeeze.flush()
            facts = {"method": 8, "size": len(entry.data), "crc": zlib.crc32(entry.data)}
            entries[place] = replace(entry, data=packed).both(**facts)
    elif packing == "a comment":
        words = b"of the future"
    elif packing == "other order":
        entries = [entries[0], *reversed(entries[1:])]
    elif packing == "more members":
        entries.append(Entry(b"zz", b"new"))
    elif packing == "other dates":
        entries = [entry.both(date=21000) for entry in entries]
    message = refusal(pack(entries, comment=words))
    assert f"format {FORMAT + 1}, but this runner reads {FORMAT}; update the runner" in message


def test_a_bundle_for_another_architecture(write_bundle: WriteBundle, capsys: pytest.CaptureFixture[str]) -> None:
    network = ModelFiles("onnx", {"model.onnx": onnx_model()}, NCHW, SCORES, 1e-4)
    path = write_bundle(network, architectures=["riscv64", "s390x"])
    for trial in (True, False):
        with pytest.raises(
            BundleError, match=f"for riscv64, s390x, but this machine is {os.uname().machine}"
        ) as caught:
            load(path, trial=trial)
        assert caught.value.exit_code == 4
    for command in ("predict", "bench", "selftest"):
        assert main([command, str(path), *(["x.npy"] if command == "predict" else [])]) == 4
        assert capsys.readouterr().err.count("\n") == 1
    assert load(write_bundle(network, architectures=["riscv64", os.uname().machine]), trial=False).selftest().ok


def test_a_bundle_for_a_target_that_is_not_known(good: bytes) -> None:
    text = unpack(good)[0].data
    entries = unpack(good)
    entries[0].data = text.replace(b'"target": "onnx"', b'"target": "coreml"')
    assert entries[0].data != text
    assert "target: got 'coreml'; known: tflite, openvino, onnx" in refusal(pack(entries))
