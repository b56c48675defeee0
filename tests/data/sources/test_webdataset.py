"""Samples in WebDataset shards."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import webdataset

from edgekit.core.errors import ConfigError, DataError
from edgekit.data import Data, fingerprint, load, parse
from tests.data.pictures import contents, picture
from tests.data.sources.test_wav_folder import wav_bytes

Members = list[tuple[str, bytes]]


def shard(path: Path, members: Members) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def pictured(first: int, count: int) -> Members:
    """Pairs of a picture and its label, 0 and 1 by turns."""
    pairs = [[(f"{n:04}.png", picture(n)), (f"{n:04}.cls", b"%d" % (n % 2))] for n in range(first, first + count)]
    return [member for pair in pairs for member in pair]


def shards(home: Path, count: int = 60, each: int = 20) -> Path:
    for number, first in enumerate(range(0, count, each)):
        shard(home / f"{number:03}.tar", pictured(first, each))
    return home


def section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    return {"path": str(shards(tmp_path / "shards")), **common(tmp_path)}


def common(tmp_path: Path) -> dict[str, object]:
    return {"cache": str(tmp_path / "cache"), "size": 8, "calibration_samples": 4}


def read(path: Path, **options: object) -> Data:
    settings = {"source": "webdataset", "path": str(path), "cache": str(path.parent / "cache"), "size": 8}
    return load(parse({**settings, "calibration_samples": 4, **options}))


def test_what_the_library_writes_is_read(tmp_path: Path) -> None:
    """Two splits by the names of their shards, JSON beside the pictures, labels that are names."""
    for split, first, count in (("train", 0, 40), ("val", 40, 12)):
        with webdataset.ShardWriter(f"{tmp_path}/birds-{split}-%06d.tar", maxcount=15, verbose=0) as writer:
            for n in range(first, first + count):
                label = {"label": ("owl", "duck")[n % 2], "place": "lake"}
                writer.write({"__key__": f"{n:05}", "png": picture(n), "json": label})
    data = read(tmp_path, label="json.label", test_fraction=0.25)
    assert data.classes == ("duck", "owl") and data.kind == "image" and data.raw_shape == (8, 8, 3)
    assert len(data.validation) == 12 and len(data.test) == 10
    assert sum(map(len, (data.train, data.calibration, data.test))) == 40
    assert isinstance(data.validation.x, np.memmap)


def test_pictures_in_shards_are_those_of_a_folder(tmp_path: Path) -> None:
    """The same pictures give the same samples with the same labels, whatever holds them."""
    found = read(shards(tmp_path / "shards"))
    for n in range(60):
        path = tmp_path / "folder" / str(n % 2) / f"{n:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(n))
    options = {"cache": str(tmp_path / "cache"), "size": 8, "calibration_samples": 4}
    other = load(parse({"source": "image_folder", "path": str(tmp_path / "folder"), **options}))
    assert contents(found) == contents(other) and found.classes == other.classes
    assert labelled(found) == labelled(other)


def labelled(data: Data) -> set[tuple[bytes, int]]:
    splits = (data.train, data.calibration, data.validation, data.test)
    return {(x.tobytes(), int(y)) for split in splits for x, y in zip(split.x, split.y, strict=True)}


def test_sounds_and_vectors(tmp_path: Path) -> None:
    sounds, vectors = list[tuple[str, bytes]](), list[tuple[str, bytes]]()
    for n in range(40):
        cls = (f"{n}.cls", b"low" if n % 2 else b"high")
        sounds += [(f"{n}.wav", wav_bytes(700 + n, 200 + 10 * n)), cls]
        vectors += [(f"{n}.npy", npy(np.arange(5) + n + 0.5)), cls]
    shard(tmp_path / "sounds" / "a.tar", sounds)
    shard(tmp_path / "vectors" / "a.tar", vectors)
    heard = read(tmp_path / "sounds", kind="audio", size=32, rate_hz=8000, seconds=0.1)
    assert (heard.kind, heard.raw_shape, heard.sample_rate_hz) == ("audio", (800,), 8000)
    assert heard.raw_range == [-1.0, 1.0] and heard.classes == ("high", "low")
    for n in range(40):
        path = tmp_path / "folder" / ("low" if n % 2 else "high") / f"{n}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(sounds[2 * n][1])
    same = {"path": str(tmp_path / "folder"), "rate_hz": 8000, "seconds": 0.1, "calibration_samples": 4}
    other = load(parse({"source": "wav_folder", **same}))
    assert labelled(heard) == labelled(other) and heard.input_path == other.input_path
    rows = read(tmp_path / "vectors", kind="vector", size=32)
    assert (rows.kind, rows.raw_shape, rows.raw_dtype) == ("vector", (5,), "float32")
    assert rows.input_path == ({"step": "read_array", "dtypes": ["float16", "float32", "float64"], "shape": [5]},)


def npy(x: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, x)
    return stream.getvalue()


def test_a_pattern_with_braces_and_names_of_classes(tmp_path: Path) -> None:
    home = shards(tmp_path / "shards")
    some = read(home / "{000..001}.tar", classes=["bee", "cat"])
    assert some.classes == ("bee", "cat") and len(contents(some)) == 40
    assert len(contents(read(home / "*.tar"))) == 60
    with pytest.raises(DataError, match=r"data.path: 003.tar does not exist, but the pattern \{000..003\}.tar names"):
        read(home / "{000..003}.tar")


def test_a_pattern_of_very_many_shards_is_refused_before_their_names_are_made(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^data\.path: .* names 1,000,000,000,000 shards; name at most 100,000$"):
        read(tmp_path / "{000000..999999}-{000000..999999}.tar")


def test_a_name_that_is_no_unicode_can_be_printed(tmp_path: Path) -> None:
    members = pictured(0, 40)
    members[6:8] = [("00\udcff.png", b"no picture"), ("00\udcff.cls", b"1")]
    shard(tmp_path / "shards" / "a.tar", members)
    [note] = [note for note in read(tmp_path / "shards", max_corrupt_fraction=0.05).notes if "skipped 1" in note]
    assert "a.tar: 00\\udcff (cannot identify" in note and note.encode()


def test_one_shard_that_changes_changes_the_data_and_its_sign(tmp_path: Path) -> None:
    home = shards(tmp_path / "shards")
    config = parse({"source": "webdataset", "path": str(home), **common(tmp_path)})
    before, sign = load(config), fingerprint(config)
    assert load(config).digest == before.digest and fingerprint(config) == sign
    shard(home / "001.tar", pictured(500, 20))
    assert load(config).digest != before.digest and fingerprint(config) != sign


def test_few_broken_pictures_are_skipped_and_named(tmp_path: Path) -> None:
    members = pictured(0, 40)
    members[6] = ("0003.png", b"no picture")
    shard(tmp_path / "shards" / "a.tar", members)
    data = read(tmp_path / "shards", max_corrupt_fraction=0.05)
    assert len(contents(data)) == 39
    assert any(
        "skipped 1 of 40 pictures that cannot be read: a.tar: 0003 (cannot identify" in note for note in data.notes
    )
    with pytest.raises(
        DataError, match=r"shards: 1 of 40 pictures cannot be read, more than data.max_corrupt_fraction"
    ):
        read(tmp_path / "shards")


GOOD = pictured(0, 30)


def cut(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def without_end(path: Path) -> None:
    path.write_bytes(path.read_bytes().rstrip(b"\0").ljust(512 * 120, b"\0")[: 512 * 4])


def joined(path: Path) -> None:
    path.write_bytes(path.read_bytes() * 2)


def damaged(path: Path) -> None:
    data = bytearray(path.read_bytes())
    with tarfile.open(path) as tar:
        tar.next()
        second = tar.next()
    assert second is not None
    data[second.offset + 148] ^= 0xFF  # its checksum
    path.write_bytes(data)


def claiming(size: int) -> Callable[[Path], None]:
    """The second header claims so many bytes, and its checksum is right."""

    def harm(path: Path) -> None:
        data = bytearray(path.read_bytes())
        header = data[1024:1536]
        header[124:136] = (b"\xff" if size < 0 else b"\x80") + size.to_bytes(11, "big", signed=True)
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
        data[1024:1536] = header
        path.write_bytes(data)

    return harm


def with_holes(path: Path) -> None:
    """The first picture as `tar --sparse` stores it: less bytes than its size says, the next header behind them."""
    data = bytearray(path.read_bytes())
    header = data[:512]
    header[156:157] = b"S"
    header[386:410] = b"%011o\0%011o\0" % (0, 100)
    header[483:495] = b"%011o\0" % 4096
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    data[:512] = header
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("members", "harm", "options", "message"),
    [
        (GOOD, claiming(1 << 60), {}, r"^a\.tar: is truncated or damaged: 0000\.cls has 1,152,.* bytes, but the"),
        (GOOD, claiming(-1024), {}, r"^a\.tar: is truncated or damaged: 0000\.cls has -1,024 bytes, but the"),
        (GOOD, with_holes, {}, r"^a\.tar: 0000\.png is stored as a sparse file; write it without tar's --sparse$"),
        ([("a\nb.png", b"x"), ("a\nb.cls", b"1")], None, {}, r"^a\.tar: a\\nb: cannot be read \(cannot identify"),
        ([("0.a\nb", b"x")], None, {}, r"^a\.tar: sample '0' has no picture \(.*\), only \.a\\nb; name its"),
        ([("0.png", b""), ("0.json", b"[" * 99999)], None, {"label": "json.label"}, r"not a JSON object with the key"),
        ([("0.png", b""), ("0.cls", b"9" * 5000)], None, {}, r"^a\.tar: the label of sample '0' is '9{119}… \(5,002"),
        (GOOD, cut, {}, r"^a\.tar: is truncated or (not a \.tar|damaged).*; fetch or write it again$"),
        (GOOD, without_end, {}, r"^a\.tar: is truncated or damaged after byte 2,048; fetch or write it again$"),
        (GOOD, damaged, {}, r"^a\.tar: is truncated or damaged after byte 1,024; fetch or write it again$"),
        (GOOD, joined, {}, r"^a\.tar: has data after its end, as joined archives do; keep each archive in its own"),
        (GOOD, lambda path: path.write_bytes(b"GIF89a" * 300), {}, r"^a\.tar: is truncated or not a \.tar \(.*\)"),
        (GOOD, lambda path: path.write_bytes(b""), {}, r"^a\.tar: is truncated or not a \.tar \(empty file\); fetch"),
        (GOOD[:1] + GOOD[2:], None, {}, r"^a\.tar: sample '0000' has no label \.cls, only \.png; write one, or name"),
        (GOOD[1:], None, {}, r"^a\.tar: sample '0000' has no picture \(\.jpg, .*, \.webp\), only \.cls; name"),
        ([*GOOD, *GOOD[:2]], None, {}, r"^a\.tar: two samples have the key '0000'; give each sample its own key$"),
        ([*GOOD[:1], *GOOD], None, {}, r"^a\.tar: two samples have the key '0000'; give each sample its own key$"),
        ([("0.jpg", b""), *GOOD[:1], ("0.png", b"")], None, {}, r"sample '0' has no label"),
        ([("0.jpg", b""), ("0.png", b""), ("0.cls", b"1")], None, {}, r"several pictures, \.jpg and \.png; name one"),
        ([], None, {}, r"^train: a\.tar contains no sample$"),
        (GOOD, None, {"label": "json.label"}, r"sample '0000' has no label \.json, only \.cls, \.png"),
        ([("0.png", b""), ("0.json", b"[1]")], None, {"label": "json.label"}, r"not a JSON object with the key 'lab"),
        ([("0.png", b""), ("0.json", b'{"label": 1.5}')], None, {"label": "json.label"}, r"is 1\.5; give a whole"),
        ([("0.png", b""), ("0.cls", b" ")], None, {}, r"the label of sample '0' is ' '; give a whole number or a name"),
        ([("0.png", b""), ("0.cls", b"\xff")], None, {}, r"the label of sample '0' is not UTF-8 text"),
        (GOOD, None, {"classes": ["one"]}, r"^data\.classes: the label 1 is not among the classes 'one'; list one"),
        (GOOD, None, {"member": "left.png"}, r"has no picture \(\.left\.png\), only \.cls, \.png"),
        ([("0.png", b"x"), ("0.cls", b"1")], None, {}, r"^a\.tar: 0: cannot be read \(cannot identify.*repair them$"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("no_recursion_limit")
def test_a_bad_shard_is_one_clear_line(members, harm, options, message, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = shard(tmp_path / "shards" / "a.tar", members)
    if harm:
        harm(path)
    with pytest.raises(DataError, match=message) as caught:
        read(tmp_path / "shards", **options)
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "cache").glob("*/record.json"))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ("a.tar", "pipe.tar"),
            r"^data\.path: pipe\.tar is not a regular file; remove it, or use a pattern without it$",
        ),
        (
            (),
            r"^data\.path: no \.tar at .*shards; name a folder of shards, or a pattern like train-\{000\.\.099\}\.tar$",
        ),
        (("a.tar.gz",), r"^data\.path: a\.tar\.gz is compressed; unpack it to \.tar"),
        (("train-0.tar", "b.tar"), r"^data\.path: b\.tar names no split, but others do; put train, validation or test"),
        (("train-test-0.tar",), r"^train-test-0\.tar: names the splits test and train; keep one of them in its name$"),
        (("val-0.tar", "test-0.tar"), r"^data\.path: no shard of the split train among 2; put train in the names"),
    ],
)
def test_shards_that_are_not_there_or_named_otherwise(names, message, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "shards").mkdir()
    for name in names:
        shard(tmp_path / "shards" / name, GOOD)
        if name == "pipe.tar":
            (tmp_path / "shards" / name).unlink()
            os.mkfifo(tmp_path / "shards" / name)
    with pytest.raises(DataError, match=message):
        read(tmp_path / "shards")


def test_vectors_of_other_sizes_are_refused_by_name(tmp_path: Path) -> None:
    pairs = [[(f"{n}.npy", npy(np.arange(5 + (n == 7)) + n + 0.5)), (f"{n}.cls", b"%d" % (n % 2))] for n in range(20)]
    shard(tmp_path / "shards" / "a.tar", [member for pair in pairs for member in pair])
    with pytest.raises(
        DataError, match=r"^a\.tar: 7: an array of shape \(6,\), but the first sample of train has \(5,\); give"
    ):
        read(tmp_path / "shards", kind="vector", size=32)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "audio", "size": 8}, r"size: got 8, but kind is audio; leave the option out"),
        ({"kind": "vector", "rate_hz": 8000}, r"rate_hz: got 8000, but kind is vector; leave the option out"),
        ({"kind": "audio", "seconds": 0.00001}, r"seconds: 1e-05 s at 16000 Hz are not a whole number of samples"),
        ({"label": "json."}, r"label: got 'json\.'; write cls, or json and a key"),
        ({"classes": ["a", "a"]}, r"classes: got \['a', 'a'\]; name each class once"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse({"source": "webdataset", "path": "x", **options})


def test_a_shard_keeps_its_digest_in_the_cache_until_it_changes(tmp_path: Path) -> None:
    home = shards(tmp_path / "shards")
    read(home)
    notes = list((tmp_path / "cache" / "digests").iterdir())
    assert len(notes) == 3 and all(len(json.loads(note.read_text())["sha256"]) == 64 for note in notes)
    notes[0].write_text("[")  # a note that is damaged is made anew
    read(home)
    assert all("sha256" in json.loads(note.read_text()) for note in notes)
