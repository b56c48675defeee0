"""An `.npz` file becomes exactly the sample of several tensors that a bundle promises, or an error of one line."""

from __future__ import annotations

import io
import resource
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.runner import inputs
from edgekit.runner.bundle.manifest import RawSpec
from edgekit.runner.errors import InputError
from edgekit.runner.loader import load
from tests.runner import flat, several
from tests.runner.conftest import npy
from tests.runner.several import THREE

RAW = several.manifest("onnx", {"m.onnx": b""}, THREE).raw
SAMPLE = several.samples(THREE, 1)[0]
VECTOR = several.joined(THREE, SAMPLE)


def read(content: bytes, folder: Path, raw: RawSpec = RAW) -> np.ndarray:
    path = folder / "a.npz"
    path.write_bytes(content)
    return inputs.read_first_sample(str(path), raw)


def refused(content: bytes, folder: Path) -> str:
    """Return the error of the file, without its name."""
    with pytest.raises(InputError) as caught:
        read(content, folder)
    message = str(caught.value)
    assert message.startswith(f"{folder / 'a.npz'}: ") and message.isprintable() and len(message) < 600
    return message[len(f"{folder / 'a.npz'}: ") :]


def zipped(members: list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return buffer.getvalue()


def members(**changes: bytes) -> list[tuple[str, bytes]]:
    """Those of a sound file; `changes` replace the bytes of some."""
    return [(f"{name}.npy", changes.get(name, npy(array))) for name, array in SAMPLE.items()]


def header(shape: str, descr: str = "'<f4'", version: int = 1) -> bytes:
    """The head of an `.npy` file that claims so much."""
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (63 - (len(text) + 10) % 64) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text)) + text


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("order", [("picture", "ids", "zoom"), ("zoom", "ids", "picture")])
def test_names_count_and_not_their_order(order: tuple[str, ...], compressed: bool, tmp_path: Path) -> None:
    found = read(several.npz({name: SAMPLE[name] for name in order}, compressed), tmp_path)
    assert found.dtype == np.float32 and found.tobytes() == VECTOR.tobytes()


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_any_zip_of_npy_files_will_do(method: int, tmp_path: Path) -> None:
    assert read(zipped(members(), method), tmp_path).tobytes() == VECTOR.tobytes()
    without_ending = [(name.removesuffix(".npy"), data) for name, data in members()]
    assert read(zipped(without_ending, method), tmp_path).tobytes() == VECTOR.tobytes()


@pytest.mark.parametrize("dtype", ["<f2", ">f2", ">f4", "<f8", ">f8", "longdouble"])
def test_floats_of_any_width_become_float32(dtype: str, tmp_path: Path) -> None:
    picture = np.array([0.1, -2.5, 3, 1e-7, 65504, 0], dtype).reshape(2, 3, 1)
    found = read(several.npz({**SAMPLE, "picture": picture}), tmp_path)
    np.testing.assert_array_equal(found[:6], picture.ravel().astype(np.float32))


@pytest.mark.parametrize("dtype", ["i1", "u1", "<i2", ">i2", "<u4", ">i4", "<i8", ">i8", "<u8"])
def test_whole_numbers_of_any_width_are_taken(dtype: str, tmp_path: Path) -> None:
    found = read(several.npz({**SAMPLE, "ids": np.array([0, 9, 4, 1], dtype)}), tmp_path)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found[6:10], [0, 9, 4, 1])


def test_the_largest_whole_numbers_are_exact(tmp_path: Path) -> None:
    wide = np.array([2**24, -(2**24), 2**24 - 1, 0])
    found = read(several.npz({**SAMPLE, "ids": wide}), tmp_path)
    np.testing.assert_array_equal(found[6:10].astype(np.int64), wide)


def test_values_lie_row_by_row_however_the_file_holds_them(tmp_path: Path) -> None:
    picture = np.asfortranarray(SAMPLE["picture"].reshape(2, 3)).reshape(2, 3, 1, order="F")
    np.save(tmp_path / "f.npy", picture)
    assert b"'fortran_order': True" in (tmp_path / "f.npy").read_bytes()
    found = read(several.npz({**SAMPLE, "picture": picture}), tmp_path)
    assert found.tobytes() == VECTOR.tobytes()


def test_doubles_below_float32_are_rounded_and_those_above_are_no_numbers(tmp_path: Path) -> None:
    small = np.array([1e-45, 1e-46, 1e-310, -1e-40, 5e-324, 1e-38]).reshape(2, 3, 1)
    found = read(several.npz({**SAMPLE, "picture": small}), tmp_path)
    np.testing.assert_array_equal(found[:6], small.ravel().astype(np.float32))
    with np.errstate(over="raise"):
        found = read(several.npz({**SAMPLE, "picture": np.full((2, 3, 1), -1e300)}), tmp_path)
    assert np.isneginf(found[:6]).all()  # which no bundle accepts; see below


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"picture": np.full((2, 3, 1), np.nan)}, "sample: holds NaN or infinity"),
        ({"picture": np.full((2, 3, 1), 1e300)}, "sample: holds NaN or infinity"),
        ({"zoom": np.float32([-np.inf])}, "sample: holds NaN or infinity"),
        ({"zoom": np.float32([5])}, "sample: tensor zoom: values from 5 to 5; the bundle takes 0.5 to 4"),
        ({"ids": np.array([0, 1, 2, 10])}, "sample: tensor ids: values from 0 to 10; the bundle takes 0 to 9"),
        ({"ids": np.full(4, 2**24)}, "sample: tensor ids: values from 16777216 to 16777216; the bundle takes 0 to 9"),
    ],
)
def test_a_bundle_refuses_values_that_it_does_not_promise_to_answer(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    model = load(several.write(tmp_path, "onnx"), trial=False, interpreter="onnxruntime")
    path = tmp_path / "a.npz"
    path.write_bytes(several.npz({**SAMPLE, **changes}))
    with pytest.raises(InputError) as caught:
        list(model.predict_file(path))
    assert str(caught.value).startswith(f"{path}: {message}")


GIVE = "give picture, ids, zoom"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ids": np.ones(4, bool)}, "tensor ids: got bool[4]; the bundle takes int32[4]"),
        ({"picture": np.ones((2, 3, 1), bool)}, "tensor picture: got bool[2, 3, 1]; the bundle takes float32[2, 3, 1]"),
        ({"ids": np.ones(4)}, "tensor ids: got float64[4]; the bundle takes int32[4]"),
        ({"ids": np.float32([0, 1.5, 2, 3])}, "tensor ids: got float32[4]; the bundle takes int32[4]"),
        ({"zoom": np.ones(1, np.int64)}, "tensor zoom: got int64[1]; the bundle takes float32[1]"),
        ({"zoom": np.float32(1)}, "tensor zoom: got float32[]; the bundle takes float32[1]"),
        ({"zoom": np.ones((1, 1))}, "tensor zoom: got float64[1, 1]; the bundle takes float32[1]"),
        ({"zoom": np.ones(0)}, "tensor zoom: got float64[0]; the bundle takes float32[1]"),
        ({"zoom": np.ones(1, complex)}, "tensor zoom: got complex128[1]; the bundle takes float32[1]"),
        ({"zoom": np.array(["1"])}, "tensor zoom: got <U1[1]; the bundle takes float32[1]"),
        ({"zoom": np.array([1], "M8[s]")}, "tensor zoom: got datetime64[s][1]; the bundle takes float32[1]"),
        ({"zoom": np.zeros(1, [("a", "f4")])}, "tensor zoom: got [('a', '<f4')][1]; the bundle takes float32[1]"),
        ({"zoom": np.array([1.0], object)}, "tensor zoom: got object[1]; the bundle takes float32[1]"),
        ({"ids": np.array([2**24 + 1, 0, 0, 0])}, "tensor ids: holds numbers beyond 16777216, which no bundle accepts"),
        ({"ids": np.array([-(2**63), 0, 0, 0])}, "tensor ids: holds numbers beyond 16777216, which no bundle accepts"),
        ({"ids": np.array([2**64 - 1, 0, 0, 0], "u8")}, "tensor ids: holds numbers beyond 16777216, which no bundle "),
        ({"depth": np.ones(1)}, f"tensors: got picture, ids, zoom, depth; {GIVE}"),
        ({"Zoom": np.ones(1)}, f"tensors: got picture, ids, zoom, Zoom; {GIVE}"),
        ({"\x1b[2J\nzoom": np.ones(1)}, f"tensors: got picture, ids, zoom, '\\x1b[2J\\nzoom'; {GIVE}"),
        ({"n" * 3000: np.ones(1)}, f"tensors: got picture, ids, zoom, {'n' * 80}; {GIVE}"),
        ({str(each): np.ones(1) for each in range(20)}, f"tensors: got picture, ids, zoom, 0, 1, 2, 3, 4 and 15 more; "
         f"{GIVE}"),
    ],
)  # fmt: skip
def test_other_tensors_are_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    assert refused(several.npz({**SAMPLE, **changes}), tmp_path).startswith(message)


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ([], f"tensors: got none; {GIVE}"),
        (members()[:2], f"tensors: got picture, ids; {GIVE}"),
        ([*members(), members()[0]], f"tensors: got picture, ids, zoom, picture; {GIVE}"),
        ([*members()[:2], members()[0]], f"tensors: got picture, ids, picture; {GIVE}"),
        ([*members(), ("zoom", members()[2][1])], f"tensors: got picture, ids, zoom, zoom; {GIVE}"),
        ([*members(), ("README.txt", b"")], f"tensors: got picture, ids, zoom, README.txt; {GIVE}"),
        ([("sub/" + name, data) for name, data in members()], "tensors: got sub/picture, sub/ids, sub/zoom"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_names_that_are_missing_doubled_or_of_no_tensor_are_refused(
    listed: list[tuple[str, bytes]], message: str, tmp_path: Path
) -> None:
    assert refused(zipped(listed), tmp_path).startswith(message)


def torn(content: bytes) -> bytes:
    return content[: len(content) * 2 // 3]


def flagged(content: bytes) -> bytes:
    """Every member marked as encrypted, in both of its headers."""
    found = bytearray(content)
    for mark, place in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        start = found.find(mark)
        while start >= 0:
            found[start + place] |= 1
            start = found.find(mark, start + 1)
    return bytes(found)


NO_ARCHIVE = "not an .npz of plain arrays ("


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", NO_ARCHIVE + "File is not a zip file); save one with numpy.savez"),
        (npy(SAMPLE["zoom"]), NO_ARCHIVE + "File is not a zip file"),
        (torn(several.npz(SAMPLE)), NO_ARCHIVE),
        (several.npz(SAMPLE)[50:], NO_ARCHIVE),
        (flagged(several.npz(SAMPLE)), NO_ARCHIVE + "encrypted"),
        (zipped(members(), zipfile.ZIP_LZMA), NO_ARCHIVE + "encrypted, or compressed in another way"),
        (zipped(members(), zipfile.ZIP_BZIP2), NO_ARCHIVE + "encrypted, or compressed in another way"),
        (zipped(members(zoom=b"")), NO_ARCHIVE),
        (zipped(members(zoom=b"hello")), NO_ARCHIVE),
        (zipped(members(zoom=npy(SAMPLE["zoom"])[:-1])), NO_ARCHIVE),
        (zipped(members(zoom=npy(SAMPLE["zoom"]) + b"\0")), NO_ARCHIVE + "bytes behind an array"),
        (zipped(members(zoom=header("(1,)", version=3) + b"\0" * 4)), NO_ARCHIVE + "version (3, 0) of the .npy format"),
        (zipped(members(zoom=header("(1,)", version=9) + b"\0" * 4)), NO_ARCHIVE),
        (zipped(members(zoom=header("(1,)", "'|O'") + b"\x80\4K\1.")), "tensor zoom: got object[1]"),
        (zipped(members(zoom=header("(-1,)") + b"\0" * 4)), "tensor zoom: got float32[-1]"),
        (zipped(members(zoom=header("(1,", "'<f4'"))), NO_ARCHIVE),
        (zipped(members(zoom=header("(" * 3000))), NO_ARCHIVE),
        (zipped(members(zoom=header("(1,)", "'|V2000000000'"))), "tensor zoom: got |V2000000000[1]"),
        (zipped(members(zoom=header("(1000000000000,)"))), "tensor zoom: got float32[1000000000000]"),
        (zipped(members(zoom=header("(1,)", "'<f4', 'more': 1"))), NO_ARCHIVE),
    ],
)  # fmt: skip
def test_damaged_archives_are_refused(content: bytes, message: str, tmp_path: Path) -> None:
    assert refused(content, tmp_path).startswith(message)


def test_pickles_are_never_opened(tmp_path: Path) -> None:
    mark = tmp_path / "opened"

    class Trap:
        def __reduce__(self) -> Any:
            return Path.touch, (mark,)

    content = several.npz({**SAMPLE, "zoom": np.array([Trap()], object)})
    assert refused(content, tmp_path).startswith("tensor zoom: got object[1]")
    assert not mark.exists()


def bomb(claims: bool) -> bytes:
    """A member of 128 MB of zeros, or one that claims 4 GB and is short."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members()[:2]:
            archive.writestr(name, data)
        with archive.open("zoom.npy", "w", force_zip64=True) as stream:
            stream.write(header("(1,)"))
            for _ in range(16 if claims else 64):
                stream.write(bytes(2**16 if claims else 2**21))
    content = buffer.getvalue()
    return content if not claims else content.replace(struct.pack("<I", 16 * 2**16 + 128), struct.pack("<I", 2**32 - 2))


TEST_BOMB = """
import resource, sys
from edgekit.runner import inputs
from edgekit.runner.errors import InputError
from tests.runner.inputs.test_tensors import RAW
from edgekit.runner.inputs import tensors
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    inputs.read_first_sample(sys.argv[1], RAW)
except InputError as error:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, error)
"""


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(lambda: bomb(False), id="unpacks to 128 megabytes"),
        pytest.param(lambda: bomb(True), id="claims four"),
        pytest.param(lambda: zipped(members(zoom=header("(1,)")[:8] + struct.pack("<H", 65535) + bytes(10**8)),
                                    zipfile.ZIP_DEFLATED), id="a header without end"),
        pytest.param(lambda: zipped(members(zoom=b"\x93NUMPY\2\0" + struct.pack("<I", 2**32 - 1) + bytes(180_000)),
                                    zipfile.ZIP_DEFLATED), id="a header of four gigabytes"),
        pytest.param(lambda: zipped(members(zoom=header("(1,)", "'<f4'", 1)), zipfile.ZIP_DEFLATED), id="no data"),
        pytest.param(lambda: bytes(10**8), id="a large file"),
    ],
)  # fmt: skip
def test_a_bomb_is_refused_before_memory_is_taken(content: Any, tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    path.write_bytes(content())
    done = subprocess.run(
        [sys.executable, "-c", TEST_BOMB, str(path)], capture_output=True, text=True, timeout=120, check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 * 2**30, 4 * 2**30)),
    )  # fmt: skip
    grown_kb, message = done.stdout.split(" ", 1)
    assert int(grown_kb) < 20_000 and message.startswith(f"{path}: ") and message.count("\n") == 1


def test_a_member_whose_size_is_a_lie_is_refused(tmp_path: Path) -> None:
    """The directory says that a tensor is small; what is unpacked goes on."""
    honest = zipped(members(zoom=npy(SAMPLE["zoom"]) + bytes(10**7)), zipfile.ZIP_DEFLATED)
    size = len(npy(SAMPLE["zoom"]))
    content = honest.replace(struct.pack("<I", size + 10**7), struct.pack("<I", size))
    assert content != honest
    assert refused(content, tmp_path).startswith(NO_ARCHIVE)


@pytest.mark.parametrize("raw", [flat.PICTURE, flat.VECTOR, flat.SOUND, flat.WINDOW])
def test_a_bundle_of_one_input_takes_no_archive(raw: RawSpec, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a.npz: holds several arrays; this bundle takes one, save a sample with"):
        read(several.npz(SAMPLE), tmp_path, raw)


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.wav", "a.csv", "a.txt", "a.zip", "a"])
def test_other_files_are_no_samples_of_several_tensors(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(several.npz(SAMPLE))
    with pytest.raises(InputError, match=r"cannot read .*; this bundle takes \.npy, \.npz$"):
        inputs.read_first_sample(str(tmp_path / name), RAW)


def test_the_joined_vector_comes_in_an_npy_file(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", VECTOR)
    assert inputs.read_first_sample(str(tmp_path / "a.npy"), RAW).tobytes() == VECTOR.tobytes()


def test_a_folder_stands_for_its_archives(tmp_path: Path) -> None:
    for name in ("b.npz", "a.NPZ", "c.txt", ".hidden.npz"):
        (tmp_path / name).write_bytes(several.npz(SAMPLE))
    assert [Path(each).name for each in inputs.input_files(str(tmp_path), RAW)] == ["a.NPZ", "b.npz"]
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match=r"a folder that holds no \.npy or \.npz file"):
        inputs.read_first_sample(str(tmp_path / "none"), RAW)


def damaged(sound: bytes, random: np.random.Generator) -> bytes:
    """Bytes changed, cut out, doubled or cut off."""
    content = bytearray(sound)
    for _ in range(random.integers(1, 4)):
        place, length = int(random.integers(len(content) or 1)), int(random.integers(1, 30))
        how = random.integers(4)
        if how == 0:
            content[place : place + 1] = bytes([random.integers(256)])
        elif how == 1:
            del content[place : place + length]
        elif how == 2:
            content[place:place] = content[place : place + length]
        elif random.random() < 0.2:
            del content[place:]
    return bytes(content)


@pytest.mark.parametrize("compressed", [False, True])
def test_three_hundred_damaged_archives_give_the_sample_or_one_line(compressed: bool, tmp_path: Path) -> None:
    """Checksums leave little that is still a sample, and that is the right one."""
    sound, random, answers = several.npz(SAMPLE, compressed), np.random.default_rng(17), 0
    for _ in range(300):
        content = damaged(sound, random)
        try:
            assert read(content, tmp_path).tobytes() == VECTOR.tobytes()
            answers += 1
        except InputError:
            refused(content, tmp_path)
    assert 0 < answers < 100


def test_three_hundred_damaged_arrays_in_sound_archives_give_a_sample_or_one_line(tmp_path: Path) -> None:
    """No checksum tells of these."""
    random, answers = np.random.default_rng(18), 0
    for _ in range(300):
        name = random.choice(list(SAMPLE))
        content = zipped(members(**{name: damaged(npy(SAMPLE[name]), random)}))
        try:
            found = read(content, tmp_path)
            assert (found.shape, found.dtype) == (VECTOR.shape, np.float32)
            answers += 1
        except InputError:
            refused(content, tmp_path)
    assert 0 < answers < 100
