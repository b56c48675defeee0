"""Folders of files such as people have: sounds of many lengths, rates and codings, pictures of many sizes and forms."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
from PIL import Image

from tests.runner.flat import form, riff

CLASSES = ("ant", "bee", "cat")
RATES = (8000, 8000, 8000, 16_000, 44_100, 11_025, 48_000, 22_050)
FORMS = (("JPEG", "jpg"), ("PNG", "png"), ("JPEG", "jpeg"), ("PNG", "PNG"), ("WEBP", "webp"))
ORIENTATION = 0x0112
WORDS = ("the", "a", "free", "call", "now", "win", "5", "£", "ünï", "café", "Σ", "ΑΣ", "İ", "日本語", "中",
         "한국", "हिन्दी", "🎉", "don't", "U.K.", "e=mc²", "\u200b", "\x85", "[SEP]", "ﬁne")  # fmt: skip


def place(home: Path, number: int, ending: str) -> Path:
    """A third of the files is test, the rest train; the classes in turn."""
    split = "test" if number % 3 == 0 else "train"
    path = home / split / CLASSES[number // 3 % len(CLASSES)] / f"{number:03}.{ending}"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def sounds(home: Path, count: int) -> dict[str, object]:
    """Tones of 5 ms to 0.4 s, of every coding, some in stereo; the section of a config that reads them."""
    random = np.random.default_rng(18)
    for number in range(count):
        rate_hz, channels = RATES[number % len(RATES)], 1 + (number % 5 == 0)
        moments = np.arange(int(rate_hz * random.uniform(0.005, 0.4)) + 1) / rate_hz
        tone = 0.6 * np.sin(2 * np.pi * random.uniform(100, 3000) * moments)[:, None] * random.uniform(0.3, 1, channels)
        place(home, number, "wav").write_bytes(_wav(tone, rate_hz, number % 6))
    return {"source": "wav_folder", "path": str(home), "rate_hz": 8000, "seconds": 0.1, "calibration_samples": 6}


def _wav(values: np.ndarray, rate_hz: int, coding: int) -> bytes:
    """A WAV file of (samples, channels) in one of six codings."""
    bits = (16, 8, 24, 32, 32, 64)[coding]
    if coding >= 4:
        return riff(form(3, bits, values.shape[1], rate_hz), values.astype(f"<f{bits // 8}").tobytes())
    whole = np.rint(values * (2 ** (bits - 1) - 1)).astype(np.int64)
    if bits == 8:
        data = (whole + 128).astype(np.uint8).tobytes()
    elif bits == 24:
        data = whole.astype("<i4").reshape(-1, 1).view(np.uint8)[:, :3].tobytes()
    else:
        data = whole.astype(f"<i{bits // 8}").tobytes()
    return riff(form(1, bits, values.shape[1], rate_hz), data)


def pictures(home: Path, count: int, **options: object) -> dict[str, object]:
    """Noise of 4×4 to 90×70 pixels in several modes and formats, some of them with an EXIF turn."""
    random = np.random.default_rng(19)
    for number in range(count):
        form_, ending = FORMS[number % len(FORMS)]
        pixels = random.integers(0, 256, (*random.integers(4, (70, 90)), 3)).astype(np.uint8)
        modes = ("RGB", "L", "RGBA", "P", "CMYK") if form_ == "PNG" else ("RGB", "L", "CMYK")
        mode = modes[number // len(FORMS) % len(modes)]
        mode = "RGB" if (form_, mode) in (("PNG", "CMYK"), ("WEBP", "CMYK"), ("WEBP", "L")) else mode
        exif = Image.Exif()
        if number % 4 == 0:
            exif[ORIENTATION] = 1 + number // 4 % 8
        stream = io.BytesIO()
        Image.fromarray(pixels).convert(mode).save(stream, form_, exif=exif)
        place(home, number, ending).write_bytes(stream.getvalue())
    section = {"source": "image_folder", "path": str(home), "cache": str(home.with_name("cache")), "size": 12}
    return {**section, "calibration_samples": 6, **options}


def recordings(home: Path, count: int) -> dict[str, object]:
    """12 to 60 rows of three channels and a clock, by commas, semicolons or tabs."""
    random = np.random.default_rng(20)
    for number in range(count):
        between = ",;\t"[number % 3]
        rows = random.normal(0, 1, (int(random.integers(12, 60)), 3)) * (1, 9.81, 100)
        lines = [between.join(("t", "ax", "ay", "az"))]
        lines += [between.join((str(moment), *map(repr, row.tolist()))) for moment, row in enumerate(rows)]
        place(home, number, "csv").write_text("\n".join(lines))
    section = {"source": "csv_windows", "path": str(home), "window": 12, "stride": 7, "columns": ["ax", "ay", "az"]}
    return {**section, "calibration_samples": 6}


def text_table(home: Path, count: int) -> dict[str, object]:
    """Texts in many scripts, quoted and with lines of their own, some of them long, in a CSV of three columns."""
    random = np.random.default_rng(21)
    written = io.StringIO(newline="")
    writer = csv.writer(written, delimiter=";", lineterminator="\r\n")
    writer.writerow(["kind", "note", " said "])
    for number in range(count):
        chosen = random.choice(WORDS, int(random.integers(3, 60)))
        text = f' {number} "' + ("\r\n" if number % 5 == 0 else " ").join(chosen) + "; " * (number % 3)
        writer.writerow([CLASSES[number % 3], "", text])
    home.mkdir(parents=True)
    (home / "said.csv").write_bytes(b"\xef\xbb\xbf" + written.getvalue().encode())
    return {
        "source": "text_table", "path": str(home / "said.csv"), "delimiter": "semicolon", "text": "said",
        "label": "kind", "tokens": 24, "vocabulary": 150, "calibration_samples": 6, "overlap": "drop",
    }  # fmt: skip


def rows(home: Path, count: int) -> dict[str, object]:
    """Tables in several spellings, columns in any order; the section of a config that reads them."""
    random = np.random.default_rng(21)
    for table, (name, between) in enumerate((("train", ","), ("validation", ";"), ("test", "\t"))):
        order = random.permutation(5)
        header = np.array(["kind", "a", "b", "c", "note"])[order]
        lines = [between.join(header)]
        for number in range(count // 3):
            values = random.normal(0, (1, 10, 1e5), 3)
            cells = [CLASSES[number % 3], *(f"{value:.{1 + number % 17}g}" for value in values), f'"{table} {number}"']
            lines.append(between.join(np.array(cells, object)[order]))
        home.mkdir(parents=True, exist_ok=True)
        end = "\r\n" if table == 1 else "\n"
        (home / f"{name}.csv").write_bytes((end.join(lines) + end).encode("utf-8-sig" if table == 2 else "utf-8"))
    return {"source": "csv_rows", "path": str(home), "label": "kind", "columns": ["c", "a", "b"],
            "calibration_samples": 6}  # fmt: skip


def tracks(home: Path, count: int) -> dict[str, object]:
    """Two long recordings, one in stereo and at another rate, labelled from end to end: every window has a label."""
    random = np.random.default_rng(22)
    for place, rate_hz in enumerate((8000, 16_000)):
        stretches = count // 2
        values = 0.5 * random.uniform(-1, 1, (stretches * rate_hz // 10, 1 + place))
        path = home / f"day {place}" / "long.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_wav(values, rate_hz, 3 * place))
        lines = [f"{0.1 * each:.6f}\t{0.1 * (each + 1):.6f}\t{CLASSES[each % 3]}" for each in range(stretches)]
        path.with_suffix(".txt").write_text("\n".join(lines) + "\n")
    return {"source": "wav_track", "path": str(home), "rate_hz": 8000, "seconds": 0.1, "calibration_samples": 6}


def texts(home: Path, count: int) -> dict[str, object]:
    """Texts in many scripts, with and without a line at their end or a byte order mark, some of them long or empty."""
    random = np.random.default_rng(21)
    for number in range(count):
        chosen = random.choice(WORDS, int(random.integers(0 if number % 17 == 0 else 3, 60)))
        text = (
            f"{number} " * (number % 17 > 0) + ("\r\n" if number % 5 == 0 else " ").join(chosen) + "\n" * (number % 3)
        )
        place(home, number, "TXT" if number % 7 == 0 else "txt").write_bytes(
            b"\xef\xbb\xbf" * (number % 4 == 0) + text.encode()
        )
    return {
        "source": "text_folder", "path": str(home), "tokens": 24, "vocabulary": 150, "calibration_samples": 6,
        "overlap": "drop",
    }  # fmt: skip
