"""A folder in which a page's commands can run: the shared run, small data, a device's files, what the page shows."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import wave
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

from tests import requirements
from tests.conftest import ROOT, TINY, FinishedRun
from tests.data import boxed
from tests.docs import pages

SHARED = Path(os.environ.get("EDGEKIT_SHARED", "/nowhere"))
THEIRS = "pretrainedResnet_quant.tflite"
RATE_HZ = 16_000


def has_shared() -> bool:
    return (SHARED / "models" / THEIRS).is_file()


TUTORIALS = {
    "docs/tutorials/digits.md": {"artifacts", "configs", "Makefile", ".venv"},
    "docs/tutorials/your-own-data.md": {"sounds", "meter.npz", "pictures.zip"},
    "docs/tutorials/raspberry-pi.md": {
        *("artifacts", "edgerun.pyz", "digits-tflite-1.0.0.edge.zip"),  # scp copies the files of the run
        *("pictures-tflite-1.0.0.edge.zip", "cam.mp4"),  # the reader's own, says the page
    },
    "docs/tutorials/camera-to-switch.md": set(),  # its commands are run by tests/device/live/test_tutorial.py
}
"""What a tutorial may start from: the clone and its run, and the reader's own data. The page makes all the rest."""


def lay_out(home: Path, run: FinishedRun) -> None:
    """Everything that some page needs; made once, then copied for each page."""
    home.mkdir()
    shutil.copytree(ROOT / "configs", home / "configs")
    shutil.copy(TINY, home / "configs" / "tiny.yaml")
    shutil.copytree(run.folder, home / "artifacts" / "tiny")
    (home / "elsewhere").symlink_to("artifacts")
    (home / ".venv").symlink_to(sys.prefix)
    shutil.copy(ROOT / "Makefile", home)
    _device(home, run)
    rng = np.random.default_rng(0)
    _sounds(home / "sounds", rng)
    _recordings(home / "worn", rng)
    _street(home, rng)
    _messages(home, rng)
    boxed.voc(home / "cells", boxed.scenes(60))
    _zip(home / "cells", home / "cells.zip")
    _pictures(home / "pictures", rng, ("day", "night"), {"train": 300, "test": 20}, 64)
    _zip(home / "pictures", home / "pictures.zip")
    x = rng.normal(size=(300, 8)).astype(np.float32)
    np.savez(home / "meter.npz", x_train=x, y_train=(x[:, 0] + x[:, 1] / 2).astype(np.float32))
    (home / "colleague.onnx").write_bytes(_network())
    if has_shared():
        _cifar10(home / "shared", rng)
        shutil.copy(SHARED / "models" / THEIRS, home)
    for name in ("root", "anna", "anna-2", "bert"):
        key = [requirements.program("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(home / name)]
        subprocess.run(key, check=True)
    if requirements.find_program("ffmpeg"):
        film = ["ffmpeg", "-loglevel", "error", "-f", "lavfi", "-i", "testsrc2=size=640x480:rate=4:duration=1"]
        subprocess.run([*film, str(home / "cam.mp4")], check=True)


def copied(supplies: Path, home: Path, page: Path) -> None:
    """What one page starts from; samples, which nothing writes to, are the same files."""
    needed = TUTORIALS.get(pages.name(page))

    def copy(source: str, target: str) -> None:
        (os.link if source.endswith((".wav", ".jpg", ".csv")) else shutil.copy2)(source, target)

    def left_out(folder: str, names: list[str]) -> set[str]:
        return set(names) - needed if needed and Path(folder) == supplies else set()

    shutil.copytree(supplies, home, symlinks=True, copy_function=copy, ignore=left_out)


def written(page: Path, home: Path) -> None:
    """The files that a page shows, as it shows them; those of the package's own folders are for test_snippets."""
    for block in pages.blocks(page):
        if block.title and not block.title.startswith("edgekit/"):
            (home / block.title).write_text(block.text, encoding="utf-8")


def environment(home: Path) -> dict[str, str]:
    """The commands `edgekit`, `edgerun` and `python` are those of this environment, and import this tree."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "EDGEKIT_SHARED": str(home / "shared")}


def _device(home: Path, run: FinishedRun) -> None:
    bundles = run.folder / "bundles"
    shutil.copy(bundles / "edgerun.pyz", home)
    for bundle in ("digits", "pictures"):
        shutil.copy(bundles / "tiny-tflite-1.0.0.edge.zip", home / f"{bundle}-tflite-1.0.0.edge.zip")


def _sounds(home: Path, rng: np.random.Generator) -> None:
    """A quarter of a second of a bell that rings at 900 Hz, or of a street."""
    time = np.arange(RATE_HZ // 4) / RATE_HZ
    for split, count in (("train", 260), ("test", 20)):
        for name, pitch in (("bell", 900), ("street", 0)):
            folder = home / split / name
            folder.mkdir(parents=True)
            for number in range(count):
                sound = 0.3 * np.sin(2 * np.pi * pitch * time) + 0.1 * rng.normal(size=len(time))
                with wave.open(str(folder / f"{number}.wav"), "wb") as file:
                    file.setnchannels(1)
                    file.setsampwidth(2)
                    file.setframerate(RATE_HZ)
                    file.writeframes((np.clip(sound, -1, 1) * 32767).astype("<i2").tobytes())


def _street(home: Path, rng: np.random.Generator) -> None:
    """Five minutes of a street, in which a bell rings for a second, a hundred times; and where."""
    rate_hz, lines = 8000, []
    sound = 0.1 * rng.normal(size=300 * rate_hz)
    for number in range(100):
        start = 3 * number + 1
        time = np.arange(rate_hz) / rate_hz
        sound[start * rate_hz :][:rate_hz] += 0.3 * np.sin(2 * np.pi * 900 * time)
        lines.append(f"{start:.6f}\t{start + 1:.6f}\tbell\n")
    (home / "street.txt").write_text("".join(lines))
    with wave.open(str(home / "street.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate_hz)
        file.writeframes((np.clip(sound, -1, 1) * 32767).astype("<i2").tobytes())


def _recordings(home: Path, rng: np.random.Generator) -> None:
    for split, count in (("train", 20), ("test", 4)):
        for name, scale in (("walking", 1.0), ("running", 3.0)):
            folder = home / split / name
            folder.mkdir(parents=True)
            for number in range(count):
                rows = scale * rng.normal(size=(1024, 3))
                np.savetxt(folder / f"{number}.csv", rows, "%.4f", ",", header="ax,ay,az", comments="")


def _messages(home: Path, rng: np.random.Generator) -> None:
    """A table of texts of two classes, and a vocabulary of theirs."""
    from edgekit.data import vocabulary

    words = {"ham": ["home", "dinner", "see", "later"], "spam": ["win", "free", "prize", "call"]}
    rows = [("ham" if number % 3 else "spam", number) for number in range(900)]
    texts = [f"{number} " + " ".join(rng.choice(words[name], 6)) for name, number in rows]
    lines = [f"{name}\t{text}" for (name, _), text in zip(rows, texts, strict=True)]
    (home / "messages.tsv").write_text("\n".join(["label\ttext", *lines]) + "\n", encoding="utf-8")
    (home / "tokenizer.json").write_bytes(vocabulary.train_vocabulary(texts, 200))


def _pictures(
    home: Path, rng: np.random.Generator, classes: tuple[str, ...], counts: dict[str, int], side: int
) -> None:
    for split, count in counts.items():
        for place, name in enumerate(classes):
            folder = home / split / name
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 128, (side, side, 3), dtype=np.uint8) + np.uint8(12 * place)
                Image.fromarray(pixels).save(folder / f"{number}.jpg")


def _zip(folder: Path, path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(folder.rglob("*.*")):
            archive.write(file, file.relative_to(folder))


def _cifar10(home: Path, rng: np.random.Generator) -> None:
    """A zip of a thousand pictures in the place of sixty thousand, and MLPerf Tiny's own file."""
    classes = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
    _pictures(home / "pictures", rng, classes, {"train": 120, "test": 20}, 32)
    for name in ("data", "models"):
        (home / name).mkdir()
    _zip(home / "pictures", home / "data" / "cifar10.zip")
    shutil.copy(SHARED / "models" / THEIRS, home / "models")


def _network() -> bytes:
    """What a colleague may have sent: an ONNX file of 32×32 colour pictures and two classes."""
    import torch

    torch.manual_seed(0)
    layers = (torch.nn.Conv2d(3, 8, 3, stride=4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(512, 2))
    content = io.BytesIO()
    torch.onnx.export(
        torch.nn.Sequential(*layers).eval(), (torch.zeros(1, 3, 32, 32),), content, dynamo=False, input_names=["input"]
    )
    return content.getvalue()
