from __future__ import annotations

import io
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgekit.core.errors import ConfigError, DataError
from edgekit.data import load, parse
from tests import requirements
from tests.data.pictures import CLASSES, contents, data_section, picture, read, samples, unpacked, zipped


def section(tmp_path, monkeypatch):
    return data_section(zipped(tmp_path, samples()))


def test_folder_and_zip_give_the_same_data(tmp_path):
    files = samples(test=5)
    one, other = read(zipped(tmp_path, files)), read(unpacked(tmp_path, files))
    assert one.digest == other.digest and one.classes == CLASSES and one.notes == ()
    assert isinstance(one.test.x.base, np.memmap) or isinstance(one.test.x, np.memmap)


@pytest.mark.parametrize("channels, mode", [(1, "L"), (3, "RGB")])
@pytest.mark.parametrize("size", [8, 10, 12])
def test_pixels_are_pillows_own(tmp_path, channels, mode, size):
    files = samples()
    data = read(zipped(tmp_path, files), size=size, channels=channels)
    bilinear = Image.Resampling.BILINEAR
    expected = [Image.open(io.BytesIO(raw)).convert(mode).resize((size, size), bilinear) for raw in files.values()]
    assert contents(data) == sorted(image.tobytes() for image in expected)
    assert data.raw_shape == (size, size, channels)


def test_labels_follow_their_pictures(tmp_path):
    files = samples()
    data = read(zipped(tmp_path, files), size=12)
    bilinear = Image.Resampling.BILINEAR
    label = {
        Image.open(io.BytesIO(raw)).convert("RGB").resize((12, 12), bilinear).tobytes(): CLASSES.index(
            name.split("/")[1]
        )
        for name, raw in files.items()
    }
    for split in (data.train, data.calibration, data.validation, data.test):
        assert [label[x.tobytes()] for x in split.x] == split.y.tolist()


@pytest.mark.parametrize("name", ["validation", "val", "valid"])
def test_a_validation_folder_is_honoured(tmp_path, name):
    data = read(zipped(tmp_path, samples(**{name: 7})))
    assert len(data.validation) == 14 and len(data.test) == 12
    assert len(data.train) + len(data.calibration) == 48


def test_a_given_split_is_in_mixed_order(tmp_path):
    data = read(zipped(tmp_path, samples(test=20)))
    assert set(data.test.y[:10].tolist()) == {0, 1}


def test_one_folder_around_everything_is_looked_through(tmp_path):
    files = samples(test=5)
    around = zipped(tmp_path, {f"my pictures/{name}": data for name, data in files.items()})
    (tmp_path / "plain").mkdir()
    assert read(around).digest == read(zipped(tmp_path / "plain", files)).digest


# What stands where it should not.


@pytest.mark.parametrize("pack", [zipped, unpacked])
@pytest.mark.parametrize(
    "change, message",
    [
        (
            lambda name: name.replace("train/bee", "tests").removeprefix("train/"),
            "no split found; expected split/class/picture.*'cat', 'tests'.*named train",
        ),
        (lambda name: name.replace("/", "_"), "no split found; expected split/class/picture"),
        (lambda name: "train/" + name.split("/")[2], "wrong depth"),
        (lambda name: "train/more/" + name, "wrong depth"),
        (lambda name: name.replace("train", "test"), "no train folder, only 'test'"),
    ],
)
def test_the_error_for_another_layout_shows_the_expected_one(tmp_path, pack, change, message):
    with pytest.raises(DataError, match=message):
        read(pack(tmp_path, {change(name): data for name, data in samples().items()}))


@pytest.mark.parametrize("pack", [zipped, unpacked])
def test_classes_without_splits_are_all_train(tmp_path, pack):
    bare = read(pack(tmp_path, {name.removeprefix("train/"): data for name, data in samples().items()}))
    (tmp_path / "split").mkdir()
    assert bare.digest == read(zipped(tmp_path / "split", samples())).digest


def test_one_stray_nested_file_is_passed_over_and_noted(tmp_path):
    files = samples()
    stray = {"train/bee/old/x.png": picture(3), "train/y.png": picture(4)}
    data = read(zipped(tmp_path, files | dict([*stray.items()][:1])))
    assert data.notes == ("skipped 1 pictures at the wrong depth: 'train/bee/old/x.png'",)
    assert len(contents(data)) == len(files)
    with pytest.raises(DataError, match="is at the wrong depth"):
        read(zipped(tmp_path, files | stray))


def test_pictures_with_a_turn_stand_upright_and_the_notes_say_it(tmp_path):
    pixels = np.zeros((16, 12, 3), np.uint8)
    pixels[:8] = (250, 10, 10)
    exif = Image.Exif()
    exif[0x0112] = 6  # as a phone stores what it took upright: turn by 90 degrees to the right
    stream = io.BytesIO()
    Image.fromarray(np.rot90(pixels)).save(stream, "PNG", exif=exif)
    path = zipped(tmp_path, samples() | {"train/bee/phone.png": stream.getvalue()})
    upright = Image.fromarray(pixels).resize((12, 12), Image.Resampling.BILINEAR).tobytes()
    turned = read(path, size=12)
    assert upright in contents(turned)
    assert "turned 1 pictures upright, as their EXIF tags say" in turned.notes
    assert upright not in contents(read(path, size=12, orientation="ignore"))


def test_pictures_of_other_proportions_are_reported_and_can_be_cropped(tmp_path):
    wide = np.zeros((10, 30, 3), np.uint8)
    wide[:, 10:20] = np.arange(10, dtype=np.uint8)[:, None, None] + 100
    stream = io.BytesIO()
    Image.fromarray(wide).save(stream, "PNG")
    path = zipped(tmp_path, samples() | {"train/bee/wide.png": stream.getvalue()})
    stretched, cropped = read(path, size=10), read(path, size=10, fit="crop")
    assert any("(1 of 30×10) and are stretched to one; data.fit: crop" in note for note in stretched.notes)
    assert not any("stretched" in note for note in cropped.notes)
    assert wide[:, 10:20].tobytes() in contents(cropped) and wide[:, 10:20].tobytes() not in contents(stretched)


def test_a_picture_with_a_flipped_bit_is_refused_and_not_half_read(tmp_path):
    """A PNG loads itself to find its EXIF tag: errors there must be reported."""
    from edgekit.runner import inputs
    from edgekit.runner.bundle.manifest import RawSpec
    from edgekit.runner.errors import InputError

    stream = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3)).astype(np.uint8)).save(stream, "PNG")
    data = bytearray(stream.getvalue())
    data[len(data) // 2] ^= 0x10
    path = zipped(tmp_path, samples() | {"train/bee/flipped.png": bytes(data)})
    assert "train/bee/flipped.png" in read(path, max_corrupt_fraction=0.05).notes[0]
    (tmp_path / "flipped.png").write_bytes(data)
    with pytest.raises(InputError, match="cannot be decoded"):
        inputs.read_first_sample(str(tmp_path / "flipped.png"), RawSpec("image", (8, 8, 3), "uint8"))


def test_a_misspelt_split_is_not_passed_over(tmp_path):
    with pytest.raises(DataError, match="'tset' is not the name of a split, did you mean \"test\""):
        read(zipped(tmp_path, samples(tset=3)))


def test_two_names_for_one_split(tmp_path):
    with pytest.raises(DataError, match="'val', 'validation' stand for the same split"):
        read(zipped(tmp_path, samples(val=3, validation=3)))


def test_other_files_are_noted(tmp_path):
    extra = {"README.txt": b"hello", "train/bee/x.gif": b"GIF89a", "__MACOSX/train/bee/._1.jpg": b"", ".DS_Store": b""}
    data = read(zipped(tmp_path, samples() | extra))
    assert data.notes == (
        "skipped 4 files that are not .jpg, .jpeg, .png or .webp: "
        "'.DS_Store', 'README.txt', '__MACOSX/train/bee/._1.jpg', 'train/bee/x.gif'",
    )


def test_linked_folders_are_noted_not_entered(tmp_path):
    folder = unpacked(tmp_path, samples())
    (folder / "train" / "loop").symlink_to(folder)
    assert read(folder).notes == ("skipped 1 linked folders: 'train/loop'",)


@pytest.mark.parametrize("pack", [zipped, unpacked])
def test_an_empty_class_folder_is_an_empty_class(tmp_path, pack):
    path = pack(tmp_path, samples())
    if path.is_dir():
        (path / "train" / "dog").mkdir()
    else:
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("train/dog/", b"")
    with pytest.raises(DataError, match="train: no sample of class 'dog'"):
        read(path)


def test_a_folder_without_pictures(tmp_path):
    (tmp_path / "pictures" / "train" / "bee").mkdir(parents=True)
    with pytest.raises(DataError, match="train: no samples"):
        read(tmp_path / "pictures")


def test_overlap_is_found_in_decoded_pixels(tmp_path):
    files = samples(test=5)
    again = io.BytesIO()
    Image.open(io.BytesIO(files["train/bee/000.png"])).save(again, "PNG", compress_level=0)
    files["test/bee/copy.png"] = again.getvalue()
    assert files["test/bee/copy.png"] != files["train/bee/000.png"]
    with pytest.raises(DataError, match="1 of 60 samples of train are also in test"):
        read(zipped(tmp_path, files))
    assert len(read(zipped(tmp_path, files), overlap="drop").test) == 11


# Pictures that cannot be read.


def spoilt(files, *names):
    return {name: data[: len(data) // 2] if name in names else data for name, data in files.items()}


@pytest.mark.parametrize("pack", [zipped, unpacked])
def test_corrupt_pictures_are_skipped_and_listed(tmp_path, pack):
    names = ("train/bee/003.jpeg", "train/cat/004.png")
    path = pack(tmp_path, spoilt(samples(), *names))
    for _ in range(2):  # from the pictures, then from the cache
        data = read(path, max_corrupt_fraction=0.05)
        assert len(contents(data)) == 58
        assert data.notes[0].startswith("skipped 2 of 60 pictures that cannot be read")
        assert all(name in data.notes[0] for name in names)
    with pytest.raises(DataError, match=r"2 of 60 pictures cannot be read.*max_corrupt_fraction 0\.01"):
        read(path)


@pytest.mark.parametrize(
    "data, why",
    [
        (b"", "cannot identify image file"),
        (b"GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00;", "cannot identify image file"),
        (picture(1)[:60], "."),
    ],
)
def test_what_is_no_picture_says_so(tmp_path, data, why):
    path = zipped(tmp_path, samples() | {"train/bee/odd.png": data})
    found = read(path, max_corrupt_fraction=0.05)
    assert why in found.notes[0] and "0x" not in found.notes[0]


def test_sixteen_bit_pictures_are_not_cut_off_in_silence(tmp_path):
    stream = io.BytesIO()
    Image.fromarray(np.full((9, 9), 40_000, np.uint16)).save(stream, "PNG")
    path = zipped(tmp_path, samples() | {"train/bee/deep.png": stream.getvalue()})
    assert "save it with 8 bits a channel" in read(path, max_corrupt_fraction=0.05).notes[0]


def test_a_flipped_bit_in_a_zip_member_is_a_corrupt_picture(tmp_path):
    path = zipped(tmp_path, samples())
    with zipfile.ZipFile(path) as archive:
        offset = archive.getinfo("train/bee/002.png").header_offset + 100
    damaged = bytearray(path.read_bytes())
    damaged[offset] ^= 0xFF
    path.write_bytes(damaged)
    assert "train/bee/002.png" in read(path, max_corrupt_fraction=0.05).notes[0]


def test_large_pictures_are_decoded_in_the_same_order(tmp_path):
    files = {name: picture(index, (120, 110)) for index, name in enumerate(samples(train=12))}
    files = {str(Path(name).with_suffix(".png")): data for name, data in files.items()}
    data = read(zipped(tmp_path, files), size=120)
    bilinear = Image.Resampling.BILINEAR
    expected = [Image.open(io.BytesIO(raw)).resize((120, 120), bilinear).tobytes() for raw in files.values()]
    assert contents(data) == sorted(expected)


def test_an_unset_variable_is_a_fault_of_the_config(monkeypatch):
    monkeypatch.delenv("NOWHERE_SET", raising=False)
    for key in ("path", "cache"):
        with pytest.raises(ConfigError, match=rf"data\.{key}: .*'NOWHERE_SET' is not set"):
            parse({"source": "image_folder", "path": "x", key: "${NOWHERE_SET}/x"})


# The real thing.


@pytest.fixture
def cifar10(tmp_path):
    requirements.data("data/cifar10.zip")
    options = {"cache": str(tmp_path), "calibration_samples": 100}
    return {"source": "image_folder", "path": "${EDGEKIT_SHARED}/data/cifar10.zip", **options}


def test_cifar10_with_a_limit_decodes_no_more_than_that(cifar10):
    calls: list[tuple[int, int]] = []
    data = load(parse({**cifar10, "limit": 1000}), lambda done, total: calls.append((done, total)))
    assert calls[-1] == (1200, 1200)
    assert data.raw_shape == (32, 32, 3) and data.classes[0] == "airplane" and data.classes[-1] == "truck"
    assert np.bincount(data.test.y).tolist() == [20] * 10
    assert [len(data.train), len(data.calibration), len(data.validation)] == [700, 100, 200]
    began = time.perf_counter()
    assert load(parse({**cifar10, "limit": 1000})).digest == data.digest
    assert time.perf_counter() - began < 5
