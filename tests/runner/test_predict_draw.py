"""`edgerun predict --draw`: PNG pictures with the boxes of the answer; what cannot be drawn is one line."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgekit.runner import bundle, drawing, load
from edgekit.runner.bundle.manifest import RawSpec
from edgekit.runner.cli import main
from edgekit.runner.commands._draw import Drawings
from edgekit.runner.errors import InputError
from tests.runner.conftest import npy
from tests.runner.test_several_outputs import LABELS, SHAPE, expected_outputs, files, images, manifest

FIXED = ("--no-trial", "--interpreter", "onnxruntime")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle whose boxes are known, on ONNX Runtime."""
    folder = tmp_path_factory.mktemp("drawn")
    content = {
        **files("onnx", folder),
        "i.npy": npy(images(2)),
        "o.npy": npy(expected_outputs(images(2)).astype(np.float32)),
    }
    bundle.write(folder / "a.edge.zip", manifest("onnx", {"model.onnx": b""}), content)
    return folder / "a.edge.zip"


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Two pictures of one name, another size, and one that is turned by its EXIF tag."""
    home = tmp_path / "in"
    for name, size in (("a.png", (96, 64)), ("b/a.jpg", (48, 32))):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(images(1)[0]).resize(size, Image.Resampling.NEAREST).save(home / name)
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.fromarray(images(1)[0]).resize((60, 90)).save(home / "turned.jpg", exif=turned)
    return home


def answers(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    assert main(["predict", *map(str, arguments), "--json", *FIXED]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def predict(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    code = main(["predict", *map(str, arguments), *FIXED])
    return code, capsys.readouterr().err


def is_outlined(drawn: Path, boxes: list[dict[str, Any]]) -> bool:
    """Whether the surest box, which lies on top, has its class's colour at its left side, where no label covers it."""
    first = boxes[0]
    left, top, _, bottom = (round(side) for side in first["box"])
    pixels = np.asarray(Image.open(drawn))
    side = pixels[top : bottom + 1, left : left + 2].reshape(-1, 3)
    look = drawing.style_of_class(LABELS.index(first["label"]))
    return bool((side == look.colour).all(axis=1).any())


def test_a_file_is_drawn_in_its_own_pixels(packed: Path, pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = pictures.parent / "drawn.png"
    (answer,) = answers(capsys, packed, pictures / "a.png", "--draw", out)
    assert answer["drawn"] == str(out)
    with Image.open(out) as drawn:
        assert (drawn.format, drawn.mode, drawn.size) == ("PNG", "RGB", (96, 64))
    assert is_outlined(out, answer["boxes"])


def test_a_folder_gets_a_picture_for_each_input(
    packed: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(pictures / "sample.npy", images(1)[0])
    out = pictures.parent / "new" / "drawn"
    found = answers(capsys, packed, pictures, "--draw", out)
    sizes = {Path(each["drawn"]).name: Image.open(each["drawn"]).size for each in found}
    assert sizes == {"a.png": (96, 64), "a-2.png": (48, 32), "sample.png": (48, 32), "turned.png": (90, 60)}
    assert sorted(path.name for path in out.iterdir()) == sorted(sizes)
    assert all(is_outlined(Path(each["drawn"]), each["boxes"]) for each in found)


def test_batches_draw_the_same_bytes(packed: Path, pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = []
    for name, more in (("one", ()), ("two", ("--batch", 1))):
        found = answers(capsys, packed, pictures, "--draw", pictures.parent / name, *more)
        made.append({Path(each["drawn"]).name: Path(each["drawn"]).read_bytes() for each in found})
    assert made[0] == made[1] and len(made[0]) == 3


def test_people_read_where_the_picture_is(packed: Path, pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = pictures.parent / "drawn.png"
    assert main(["predict", str(packed), str(pictures / "a.png"), "--draw", str(out), *FIXED]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"  drawn into {out}"


@pytest.mark.parametrize("pixels", ["rgb24", "gray"])
def test_frames_of_a_stream_are_drawn(pixels: str, packed: Path, tmp_path: Path) -> None:
    frame = np.asarray(Image.fromarray(images(1)[0]).resize((480, 320), Image.Resampling.NEAREST))
    sent = frame if pixels == "rgb24" else frame[..., 1]
    command = [sys.executable, "-m", "edgekit.runner", "predict", packed, "--stream", pixels, "--size", "480x320"]
    command += ["--draw", tmp_path / "frames", "--json", *FIXED]
    done = subprocess.run([*map(str, command)], input=2 * sent.tobytes(), capture_output=True, timeout=120, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [Path(each["drawn"]).name for each in found] == ["frame-000000.png", "frame-000001.png"]
    for each in found:
        drawn = np.asarray(Image.open(each["drawn"]))
        assert drawn.shape == (320, 480, 3)
        coloured = np.broadcast_to(sent.reshape(320, 480, -1), drawn.shape)
        assert (drawn == coloured).all(axis=2).mean() > 0.1, "the frame is behind its boxes"
        assert not each["boxes"] or is_outlined(Path(each["drawn"]), each["boxes"])


def test_what_cannot_be_is_one_line_before_anything_is_written(
    packed: Path, pictures: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    cases = [
        ((pictures, "--draw", tmp_path / "one.png"), "3 pictures do not fit into one file; name a folder"),
        ((pictures / "a.png", "--draw", ""), "--draw: names nothing"),
        ((pictures / "a.png", "--draw", tmp_path / "file"), "is a file; name a folder, or a file that ends in .png"),
        ((pictures / "a.png", "--draw", tmp_path / "no" / "one.png"), "there is no folder"),
        ((pictures / "a.png", "--draw", pictures), "would overwrite the input"),
        ((pictures / "a.png", "--draw", pictures / "a.png"), "would overwrite the input"),
        (("--stream", "rgb24", "--size", "9x9", "--draw", tmp_path / "one.png"), "are many pictures; name a folder"),
    ]
    before = sorted(tmp_path.rglob("*"))
    for arguments, text in cases:
        code, line = predict(capsys, packed, *arguments)
        assert code == 4 and text in line and line.count("\n") == 1, (arguments, line)
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "file").read_text() == "mine"


def test_a_file_below_a_file_is_one_line(
    packed: Path, pictures: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    code, line = predict(capsys, packed, pictures / "a.png", "--draw", tmp_path / "file" / "below")
    assert code == 4 and line.count("\n") == 1 and "is a file" in line, line


def failed(*arguments: object, most_bytes: int = resource.RLIM_INFINITY) -> str:
    """What a process says that may write no file larger than that: the kernel refuses, as where a disk is full."""
    done = subprocess.run(
        [sys.executable, "-m", "edgekit.runner", "predict", *map(str, arguments), *FIXED],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes)),
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 7 and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_what_cannot_be_written_is_one_line_and_leaves_the_old_picture(
    packed: Path, pictures: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "drawn"
    answers(capsys, packed, pictures / "a.png", "--draw", out)
    before = (out / "a.png").read_bytes()
    line = failed(packed, pictures / "a.png", "--draw", out, most_bytes=100)
    assert "--draw: cannot be written: File too large; make room, or name another place" in line
    assert [path.name for path in out.iterdir()] == ["a.png"] and (out / "a.png").read_bytes() == before


def test_the_longest_name_is_drawn(packed: Path, pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = pictures / f"{'x' * 251}.png"
    (pictures / "a.png").rename(long)
    [found] = answers(capsys, packed, long, "--draw", pictures.parent / "drawn")
    assert Path(found["drawn"]).name == long.name and Path(found["drawn"]).is_file()


def test_a_picture_that_cannot_be_drawn_is_answered_and_keeps_no_other_from_its_own(
    packed: Path, pictures: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The second of two with the longest name gets a number, which makes it too long for the file system."""
    for place in ("one", "two"):
        (pictures / place).mkdir()
        Image.open(pictures / "a.png").save(pictures / place / f"{'x' * 251}.png")
    names = [*map(str, sorted(pictures.glob("*/x*.png"))), str(pictures / "turned.jpg")]
    assert main(["predict", str(packed), *names, "--draw", str(tmp_path / "drawn"), "--json", *FIXED]) == 4
    out = capsys.readouterr()
    first, second, too_long, third = map(json.loads, out.out.splitlines())
    assert first["drawn"] and third["drawn"] and second["boxes"] == first["boxes"] and "drawn" not in second
    assert "the name is too long" in too_long["error"] and "1 of 3 inputs got no answer or no picture" in out.err


def test_a_picture_that_has_changed_since_is_not_drawn(packed: Path, pictures: Path, tmp_path: Path) -> None:
    model, path = load(packed, trial=False, interpreter="onnxruntime"), str(pictures / "a.png")
    drawings = Drawings(model.manifest, str(tmp_path / "drawn"), [path])
    [answer] = model.predict_file(path)
    Image.new("RGB", (8, 8)).save(path)
    with pytest.raises(InputError, match="has changed since"):
        drawings.file(path, answer.prediction)
    assert not list((tmp_path / "drawn").iterdir())


def test_a_folder_that_cannot_be_made_is_one_line(packed: Path, pictures: Path) -> None:
    assert "--draw: cannot be written" in failed(packed, pictures / "a.png", "--draw", "/proc/drawn")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"task": "classification"}, "answers with classification, which cannot be drawn into a picture; only "),
        ({"raw": RawSpec("image", (*SHAPE, 3), "float32")}, "takes image float32[32, 48, 3], not pictures of bytes"),
    ],
)
def test_what_has_no_place_in_a_picture_is_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=re.escape(text)):
        drawing.check_drawable(replace(manifest("onnx", {"model.onnx": b""}), **changes))


def test_sound_is_not_drawn(packed: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["predict", str(packed), "--stream", "s16le", "--draw", str(tmp_path)])
    assert ended.value.code == 2
