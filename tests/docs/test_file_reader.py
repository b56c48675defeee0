"""What the page of the bundle format says of files is what edgekit computes: `file_reader.py` agrees with it."""

from __future__ import annotations

import re
import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgekit.runner import input_path, inputs
from edgekit.runner.bundle import archive
from edgekit.runner.bundle.manifest import RawSpec
from edgekit.runner.errors import InputError
from edgekit.runner.inputs import resampling
from tests.conftest import ROOT
from tests.docs import file_reader
from tests.runner import several

PAGE = (ROOT / "docs" / "reference" / "bundle-format.md").read_text()
RATE_HZ = 8000
SOUND_STEPS = [{"step": "decode_wav"}, {"step": "mix_channels"}, {"step": "resample", "rate_hz": RATE_HZ}]


def test_the_reader_knows_nothing_of_edgekit() -> None:
    source = Path(file_reader.__file__).read_text()
    assert not re.findall(r"^\s*(?:import|from) edgekit", source, re.MULTILINE)


def test_every_step_is_described() -> None:
    section = PAGE.partition("## From a file to a sample")[2].partition("The steps compute:")[2]
    assert re.findall(r"^- `(\w+)`:", section, re.MULTILINE) == list(input_path.STEPS)


def test_the_stated_limit_of_members_is_that_of_the_archive() -> None:
    assert f"{archive.MAX_MEMBERS:,} members" in PAGE


def wav(
    path: Path,
    x: np.ndarray,
    code: int,
    bits: int,
    rate_hz: int = RATE_HZ,
    extensible: bool = False,
    sized: bool = True,
) -> Path:
    """A WAV file of (samples, channels) numbers, an odd chunk before its sound."""
    data = x.astype("<i4").view(np.uint8).reshape(*x.shape, 4)[..., :3].tobytes() if bits == 24 else x.tobytes()
    frame = x.shape[1] * bits // 8
    form = struct.pack("<HHIIHH", 0xFFFE if extensible else code, x.shape[1], rate_hz, rate_hz * frame, frame, bits)
    if extensible:
        form += struct.pack("<HHI", 22, bits, 0) + struct.pack("<H", code) + bytes(14)
    stated_size = len(data) if sized else 0xFFFFFFFF
    chunks = b"LIST" + struct.pack("<I", 3) + b"odd\0" + b"fmt " + struct.pack("<I", len(form)) + form
    path.write_bytes(
        b"RIFF" + struct.pack("<I", 0) + b"WAVE" + chunks + b"data" + struct.pack("<I", stated_size) + data
    )
    return path


def compared(path: Path, raw: RawSpec) -> list[np.ndarray]:
    """edgekit's samples of a sound, once the stranger's are found to be the same bits."""
    own = [sample.raw for sample in inputs.samples(str(path), raw)]
    declared = {"input_path": list(raw.steps), "sample_rate_hz": raw.sample_rate_hz}
    read = list(file_reader.sounds(path.read_bytes(), declared))
    assert len(own) == len(read) > 0
    for mine, theirs in zip(own, read, strict=True):
        assert mine.dtype == theirs.dtype == np.float32 and mine.shape == tuple(raw.shape)
        np.testing.assert_array_equal(mine, theirs)
    return own


def sound(samples: int, steps: list[dict[str, Any]]) -> RawSpec:
    return RawSpec("audio", (samples,), "float32", (-1.0, 1.0), RATE_HZ, input_path=tuple(steps))


@pytest.mark.parametrize("channels", [1, 2, 3])
@pytest.mark.parametrize(
    ("code", "bits", "dtype"),
    [(1, 8, "u1"), (1, 16, "<i2"), (1, 24, "<i4"), (1, 32, "<i4"), (3, 32, "<f4"), (3, 64, "<f8")],
)
def test_a_sound_is_decoded_and_mixed_as_the_page_says(
    code: int, bits: int, dtype: str, channels: int, tmp_path: Path
) -> None:
    rng = np.random.default_rng(bits)
    if code == 3:
        x = rng.uniform(-1, 1, (501, channels)).astype(dtype)
    else:
        low, high = (0, 256) if bits == 8 else (-(2 ** (bits - 1)), 2 ** (bits - 1))
        x = rng.integers(low, high, (501, channels)).astype(dtype)
        x[0], x[1] = low, high - 1
    for extensible, sized in ((False, True), (True, True), (False, False)):
        path = wav(tmp_path / "x.wav", x, code, bits, extensible=extensible, sized=sized)
        compared(path, sound(501, SOUND_STEPS))


@pytest.mark.parametrize("fill", ["silence", "none"])
@pytest.mark.parametrize(("samples", "length", "stride"), [(100, 30, 20), (90, 30, 30), (31, 30, 7), (30, 30, 40)])
def test_a_recording_is_cut_into_windows_as_the_page_says(
    samples: int, length: int, stride: int, fill: str, tmp_path: Path
) -> None:
    x = np.random.default_rng(0).integers(-100, 100, (samples, 1)).astype("<i2")
    cut = {"step": "windows", "length": length, "stride": stride, "fill": fill}
    compared(wav(tmp_path / "x.wav", x, 1, 16), sound(length, [*SOUND_STEPS, cut]))


def test_a_short_sound_is_filled_up_as_the_page_says(tmp_path: Path) -> None:
    x = np.full((5, 1), 100, "<i2")
    cut = {"step": "windows", "length": 8, "stride": 8, "fill": "silence"}
    (sample,) = compared(wav(tmp_path / "x.wav", x, 1, 16), sound(8, [*SOUND_STEPS, cut]))
    assert sample[5:].tolist() == [0, 0, 0]


@pytest.mark.parametrize(("from_hz", "to_hz"), [(11_025, 8000), (8000, 22_050), (48_000, 16_000), (8000, 16_000)])
def test_the_stated_filter_resamples(from_hz: int, to_hz: int) -> None:
    """To 1 in 10 million of full scale: a last bit or two of float32. Full scale rings out, so clipping is seen too."""
    moments = np.arange(400) / from_hz
    x = np.where(np.sin(2 * np.pi * 440 * moments) > 0, 1, -1).astype(np.float32)
    for loud in (np.float32(1), np.float32(2)):
        own, read = resampling.resample(loud * x, from_hz, to_hz), file_reader.resampled(loud * x, from_hz, to_hz)
        assert own.shape == read.shape and np.abs(own).max() >= 1
        np.testing.assert_allclose(read, own, rtol=0, atol=3e-7)


PICTURES = {
    "RGB": (37, 53, 3), "L": (37, 53), "RGBA": (37, 53, 4), "LA": (37, 53, 2), "P": (37, 53), "CMYK": (37, 53, 4),
}  # fmt: skip


def drawn(mode: str) -> Image.Image:
    """A picture of noise: `P` with a palette, one of its colours transparent."""
    pixels = np.random.default_rng(3).integers(0, 256, PICTURES[mode], dtype=np.uint8)
    if mode != "P":
        return Image.fromarray(pixels, mode)
    image = Image.fromarray(pixels, "L").convert("RGB").quantize(16)
    image.info["transparency"] = 3
    return image


def same_picture(
    path: Path, channels: int, orientation: str, size: tuple[int, int] | None, fit: str = "stretch", **options: float
) -> None:
    """The stranger's sample is edgekit's, whichever pass this Pillow begins with."""
    steps: list[dict[str, Any]] = [{"step": "decode_picture", "orientation": orientation, "channels": channels}]
    if size:
        steps.append({"step": "resize_picture", "height": size[0], "width": size[1], "fit": fit, **options})
    raw = RawSpec("image", (*(size or (37, 53)), channels), "uint8", input_path=tuple(steps))
    own = inputs.read_first_sample(str(path), raw)
    content = path.read_bytes()
    read, other = (file_reader.picture(content, steps, height_first=first) for first in (False, True))
    assert read.dtype == own.dtype == np.uint8 and read.shape == own.shape
    assert np.array_equal(read, own) or (np.array_equal(other, own) and np.abs(read - own.astype(int)).max() <= 1)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("mode", PICTURES)
def test_a_picture_is_decoded_as_the_page_says(mode: str, channels: int, tmp_path: Path) -> None:
    suffix = "jpg" if mode == "CMYK" else "png"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        drawn(mode).save(tmp_path / f"x.{suffix}")
    same_picture(tmp_path / f"x.{suffix}", channels, "apply", None)


@pytest.mark.parametrize("orientation", ["apply", "ignore"])
@pytest.mark.parametrize("tag", range(10))
def test_a_picture_is_turned_as_the_page_says(tag: int, orientation: str, tmp_path: Path) -> None:
    image, exif = drawn("RGB"), Image.Exif()
    exif[0x0112] = tag
    image.save(tmp_path / "x.png", exif=exif)
    same_picture(tmp_path / "x.png", 3, orientation, (40, 40))


@pytest.mark.parametrize("fit", ["stretch", "crop"])
@pytest.mark.parametrize("size", [(8, 8), (37, 53), (37, 20), (64, 64), (1, 1), (100, 7), (30, 53), (2, 300)])
def test_a_picture_is_brought_to_size_as_the_page_says(size: tuple[int, int], fit: str, tmp_path: Path) -> None:
    drawn("RGB").save(tmp_path / "x.png")
    same_picture(tmp_path / "x.png", 3, "apply", size, fit)
    same_picture(tmp_path / "x.png", 1, "apply", size, fit)
    if fit == "crop":
        same_picture(tmp_path / "x.png", 3, "apply", size, fit, share=0.875)


TENSORS = several.manifest("onnx", {"m.onnx": b""}, several.THREE).raw
READABLE = {
    "kind": "tensors", "shape": list(TENSORS.shape), "dtype": "float32", "tensors": list(TENSORS.tensors or ()),
}  # fmt: skip


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("dtypes", [("<f8", "<i8"), (">f4", ">u2"), ("<f2", "i1")])
def test_tensors_are_read_as_the_page_says(dtypes: tuple[str, str], compressed: bool, tmp_path: Path) -> None:
    sample = several.samples(several.THREE, 1)[0]
    picture = np.asfortranarray(sample["picture"].astype(dtypes[0]))
    content = several.npz({**sample, "picture": picture, "ids": sample["ids"].astype(dtypes[1])}, compressed)
    (tmp_path / "x.npz").write_bytes(content)
    own, read = inputs.read_first_sample(str(tmp_path / "x.npz"), TENSORS), file_reader.tensors(content, READABLE)
    assert own.dtype == read.dtype == np.float32 and own.tobytes() == read.tobytes()


@pytest.mark.parametrize(
    "changes",
    [
        {"ids": np.zeros(4)}, {"ids": np.zeros(4, bool)}, {"zoom": np.ones(1, int)}, {"zoom": np.ones((1, 1))},
        {"ids": np.full(4, 2**24 + 1)}, {"more": np.ones(1)},
    ],
)  # fmt: skip
def test_tensors_that_the_page_refuses_are_refused(changes: dict[str, np.ndarray], tmp_path: Path) -> None:
    content = several.npz({**several.samples(several.THREE, 1)[0], **changes})
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(AssertionError):
        file_reader.tensors(content, READABLE)
    with pytest.raises(InputError):
        inputs.read_first_sample(str(tmp_path / "x.npz"), TENSORS)
