"""Pictures, arrays and folders become exactly the raw samples that a bundle promises, or an error with the fix."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgekit.data import load as load_data
from edgekit.data import parse
from edgekit.runner import inputs
from edgekit.runner.bundle.manifest import RawSpec
from edgekit.runner.errors import InputError
from edgekit.runner.inputs import wav
from tests.runner import flat
from tests.runner.flat import PICTURE, SOUND, VECTOR, predict, refusal


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return flat.kinds(tmp_path_factory.mktemp("flat"))


def picture(width: int, height: int) -> Image.Image:
    """Red grows to the right, green downwards, blue is even."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[..., 0] = np.linspace(0, 255, width)
    pixels[..., 1] = np.linspace(0, 255, height)[:, None]
    pixels[..., 2] = 90
    return Image.fromarray(pixels)


@pytest.mark.parametrize("size", [(10, 6), (50, 30), (30, 50)])
def test_a_picture_of_any_size_keeps_its_sides_and_colours(size: tuple[int, int], tmp_path: Path) -> None:
    picture(*size).save(tmp_path / "one.png")
    sample = inputs.read_first_sample(str(tmp_path / "one.png"), PICTURE)
    assert (sample.shape, sample.dtype) == ((6, 10, 3), np.uint8)
    red, green, blue = (sample[..., channel].astype(int) for channel in range(3))
    assert (np.diff(red, axis=1) > 0).all() and np.ptp(red, axis=0).max() <= 1
    assert (np.diff(green, axis=0) > 0).all() and np.ptp(green, axis=1).max() <= 1
    assert np.abs(blue - 90).max() <= 1


@pytest.mark.parametrize("channels", [1, 3])
def test_a_picture_becomes_what_it_was_in_training_to_the_bit(channels: int, tmp_path: Path) -> None:
    """Every mode of 8 bits, as PNG and JPEG, larger and smaller than the bundle's side; through the data source."""
    generator = np.random.default_rng(3)
    forms = [
        *((mode, "png") for mode in ("1", "L", "LA", "P", "RGB", "RGBA")),
        ("L", "jpg"),
        ("RGB", "jpeg"),
        ("CMYK", "jpg"),
    ]
    for split in ("train", "test"):
        for label in ("a", "b"):
            (tmp_path / split / label).mkdir(parents=True)
            for number, (mode, suffix) in enumerate(forms * 2):
                pixels = generator.integers(0, 256, (*generator.integers(4, 30, 2), 3)).astype(np.uint8)
                Image.fromarray(pixels).convert(mode).save(tmp_path / split / label / f"{number}.{suffix}")
    section = {"source": "image_folder", "path": str(tmp_path), "cache": str(tmp_path / "cache"), "size": 12}
    data = load_data(parse({**section, "channels": channels, "calibration_samples": 2}))
    trained = sorted(
        x.tobytes() for split in (data.train, data.calibration, data.validation, data.test) for x in split.x
    )
    raw = RawSpec("image", (12, 12, channels), "uint8")
    paths = [path for split in ("train", "test") for path in inputs.input_files(str(tmp_path / split), raw)]
    assert len(paths) == 72
    assert sorted(inputs.read_first_sample(path, raw).tobytes() for path in paths) == trained


def test_a_mangled_picture_is_an_input_error_or_a_picture(tmp_path: Path) -> None:
    """Never another exception, whatever Pillow stumbles over."""
    generator, refused = np.random.default_rng(1), 0
    for suffix in ("png", "jpg"):
        buffer = io.BytesIO()
        picture(24, 18).save(buffer, "PNG" if suffix == "png" else "JPEG")
        for _ in range(300):
            data = bytearray(buffer.getvalue())
            for place in generator.integers(0, len(data), 3):
                data[place] = generator.integers(256)
            path = tmp_path / f"x.{suffix}"
            path.write_bytes(
                bytes(data[: generator.integers(1, len(data))]) if generator.random() < 0.3 else bytes(data)
            )
            try:
                assert inputs.read_first_sample(str(path), PICTURE).shape == PICTURE.shape
            except InputError:
                refused += 1
    assert refused > 200


def test_pictures_that_are_none_are_refused(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((8, 8), np.uint16)).save(tmp_path / "deep.png")
    assert "8 bits" in refusal(tmp_path / "deep.png", PICTURE)
    picture(8, 8).save(tmp_path / "bitmap.bmp")
    (tmp_path / "bitmap.bmp").rename(tmp_path / "bitmap.png")
    assert "decoded" in refusal(tmp_path / "bitmap.png", PICTURE)
    Image.new("1", (9000, 9000)).save(tmp_path / "huge.png")
    assert "9000×9000 pixels" in refusal(tmp_path / "huge.png", PICTURE)
    picture(8, 8).save(tmp_path / "good.png")
    assert ".npy" in refusal(tmp_path / "good.png", VECTOR)
    assert ".npy" in refusal(tmp_path / "good.png", RawSpec("image", (6, 10, 3), "float32"))


def test_without_pillow_the_line_that_installs_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture(8, 8).save(tmp_path / "one.png")
    monkeypatch.setitem(sys.modules, "PIL", None)
    message = refusal(tmp_path / "one.png", PICTURE)
    assert "pip install pillow" in message and sys.executable in message and "edgerun doctor" in message


def test_a_mangled_array_is_an_input_error_or_an_array(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(5, np.float32))
    path = tmp_path / "x.npy"
    for place in range(128):
        for value in (0, 0x28, 0x5D, 0x7B, 0xFF):
            data = bytearray(buffer.getvalue())
            data[place] = value
            path.write_bytes(data)
            try:
                assert isinstance(inputs.read_first_sample(str(path), VECTOR), np.ndarray)
            except InputError as error:
                assert "plain .npy array" in str(error)
    for length in range(len(buffer.getvalue())):
        path.write_bytes(buffer.getvalue()[:length])
        refusal(path, VECTOR)


def test_an_array_larger_than_memory_is_refused_by_its_header(
    kinds: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "vast.npy"
    with open(path, "wb") as stream:
        np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": (2**36,)})
        stream.truncate(stream.tell() + 2**38)  # a quarter of a terabyte, of which the disk stores nothing
    predict(kinds["vector"], path, code=4)
    assert f"float32[{2**36}]" in capsys.readouterr().err


def test_a_folder_is_every_file_that_can_be_a_sample_in_order(tmp_path: Path) -> None:
    for name in (
        "b.png",
        "a/10.PNG",
        "a/9.jpg",
        "c.npy",
        "a/x.wav",
        ".hidden.png",
        ".git/x.png",
        "notes.txt",
        "z/.keep",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    found = [os.path.relpath(path, tmp_path) for path in inputs.input_files(str(tmp_path), PICTURE)]
    assert found == ["a/10.PNG", "a/9.jpg", "b.png", "c.npy"]
    sounds = inputs.input_files(str(tmp_path), SOUND)
    assert [os.path.relpath(path, tmp_path) for path in sounds] == ["a/x.wav", "c.npy"]
    assert inputs.input_files(str(tmp_path / "b.png"), SOUND) == [str(tmp_path / "b.png")]


def test_a_folder_without_samples_is_an_error(
    kinds: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("none here")
    predict(kinds["vector"], tmp_path, code=4)
    captured = capsys.readouterr()
    assert captured.out == "" and f"{tmp_path}: a folder that holds no .npy file" in captured.err
    predict(kinds["image"], tmp_path / "notes.txt", code=4)
    assert "cannot read .txt; this bundle takes .npy, .png, .jpg, .jpeg" in capsys.readouterr().err
    os.mkfifo(tmp_path / "pipe.npy")
    predict(kinds["image"], tmp_path / "pipe.npy", code=4)
    assert "not a plain file" in capsys.readouterr().err


def test_one_bad_file_does_not_keep_the_others_from_their_answers(
    kinds: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["a.npy", "b.npy", "c.npy", "d.npy"]
    for name, sample in zip(names, flat.examples(VECTOR, 4), strict=True):
        np.save(tmp_path / name, sample)
    np.save(tmp_path / "b.npy", np.full(5, np.nan, np.float32))
    predict(kinds["vector"], tmp_path, tmp_path / "gone.npy", "--json", code=4)
    captured = capsys.readouterr()
    lines = [json.loads(line) for line in captured.out.splitlines()]
    paths = [str(tmp_path / name) for name in [*names, "gone.npy"]]
    assert [line["input"] for line in lines] == paths
    assert ["error" in line for line in lines] == [False, True, False, False, True]
    assert "NaN" in lines[1]["error"] and "label" not in lines[1]
    assert all(
        set(lines[index]["timing_ms"]) == {"read", "preprocess", "execute", "postprocess"} for index in (0, 2, 3)
    )
    errors = captured.err.strip().splitlines()
    assert len(errors) == 3 and all(line.startswith("edgerun: ") for line in errors)
    assert paths[1] in errors[0] and paths[4] in errors[1] and "2 of 5 inputs got no answer" in errors[2]
    predict(kinds["vector"], tmp_path, code=4)
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")] == [
        paths[0], paths[2], paths[3]
    ]  # fmt: skip


def test_an_array_needs_no_pillow_and_a_picture_no_wav(kinds: dict[str, Path], tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", flat.examples(PICTURE, 1)[0])
    code = (
        "import sys; from edgekit.runner.cli import main; "
        f"main(['predict', {str(kinds['image'])!r}, {str(tmp_path / 'x.npy')!r}, '--no-trial']); "
        "print(*[name for name in sys.modules if name.startswith(('PIL', 'wave', 'edgekit.runner.inputs.'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "edgekit.runner.inputs.windows edgekit.runner.inputs.array"


def test_the_conversion_names_a_new_file(tmp_path: Path) -> None:
    assert wav.conversion_command("a b.wav", 400, 8000).endswith("'a b-8000hz.wav'")
