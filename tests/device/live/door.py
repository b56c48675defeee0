"""A drawn film of a door at which a visitor stands for a while, and a detector that finds the visitor's red coat."""

from __future__ import annotations

import subprocess
from pathlib import Path

from PIL import Image, ImageDraw

from tests import requirements
from tests.device.live import films

WIDTH, HEIGHT, RATE = 640, 480, 10
ENTERS_S, STANDS_S, LEAVES_S, SECONDS = 1.0, 2.5, 6.0, 20
PLACE = 360
"""Where the visitor stands: the middle of a column of the detector's cells."""
SIDES = (0.75, 2.0, 0.75, 2.9)
"""Distances from the middle of the coat to the sides of the box, in cells."""


def detector(path: Path) -> Path:
    """Write a bundle that takes red coats for persons."""
    weights = {"person": (10.0, -10.0, -10.0), "bicycle": (-10.0, -10.0, 10.0)}
    return films.detector(path, weights, -3.0, sides=SIDES, name="detector")


def film(path: Path) -> Path:
    """Write the film, with noise as a camera has it."""
    noise = ["-vf", "noise=alls=6:allf=t", "-pix_fmt", "yuv420p", "-c:v", "mpeg4", "-q:v", "5"]
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{WIDTH}x{HEIGHT}", "-r", str(RATE), "-i", "-"]
    frames = b"".join(_frame(number / RATE).tobytes() for number in range(SECONDS * RATE))
    command = [requirements.program("ffmpeg"), "-loglevel", "error", "-y", *raw, *noise, str(path)]
    subprocess.run(command, input=frames, check=True, timeout=120)
    return path


def _frame(time_s: float) -> Image.Image:
    picture = Image.new("RGB", (WIDTH, HEIGHT), (176, 178, 176))
    draw = ImageDraw.Draw(picture)
    for row, top in enumerate(range(0, 400, 28)):  # a wall of bricks
        for left in range(-60 + 30 * (row % 2), WIDTH, 62):
            draw.rectangle((left, top, left + 58, top + 24), (196 - row, 192 - row, 184 - row))
    draw.rectangle((0, 400, WIDTH, HEIGHT), (120, 122, 120))
    draw.polygon(((90, HEIGHT), (250, 400), (470, 400), (600, HEIGHT)), (150, 150, 146))
    draw.rectangle((262, 72, 458, 402), (232, 230, 224))
    draw.rectangle((276, 86, 444, 400), (74, 98, 92))
    for box in ((294, 106, 352, 220), (368, 106, 426, 220), (294, 250, 352, 380), (368, 250, 426, 380)):
        draw.rectangle(box, (64, 86, 80), (52, 70, 66), 3)
    draw.ellipse((424, 240, 438, 254), (210, 190, 120))
    draw.rectangle((30, 120, 190, 260), (232, 230, 224))
    draw.rectangle((40, 130, 180, 250), (150, 176, 192))
    draw.line((110, 130, 110, 250), (232, 230, 224), 6)
    draw.rectangle((520, 330, 600, 402), (132, 118, 100))
    draw.ellipse((506, 236, 614, 346), (92, 122, 84))
    place = _place(time_s)
    if place is not None:
        _draw_visitor(draw, place)
    return picture


def _place(time_s: float) -> float | None:
    """Where the visitor is: comes from the left, stands, and goes to the right."""
    if time_s < ENTERS_S:
        return None
    if time_s < STANDS_S:
        return -80 + (PLACE + 80) * (time_s - ENTERS_S) / (STANDS_S - ENTERS_S)
    gone = max(0.0, time_s - LEAVES_S) * 250
    return PLACE + gone if gone < WIDTH else None


def _draw_visitor(draw: ImageDraw.ImageDraw, x: float) -> None:
    draw.ellipse((x - 52, 430, x + 52, 450), (104, 106, 104))
    draw.rounded_rectangle((x - 32, 336, x - 4, 436), 8, (52, 56, 74))
    draw.rounded_rectangle((x + 4, 336, x + 32, 436), 8, (52, 56, 74))
    draw.rounded_rectangle((x - 38, 426, x - 2, 442), 6, (40, 36, 34))
    draw.rounded_rectangle((x + 2, 426, x + 38, 442), 6, (40, 36, 34))
    draw.rounded_rectangle((x - 44, 214, x + 44, 352), 22, (205, 38, 34))
    draw.line((x, 220, x, 350), (160, 26, 24), 3)
    draw.ellipse((x - 27, 154, x + 27, 214), (224, 184, 150))
    draw.pieslice((x - 30, 146, x + 30, 204), 180, 360, (70, 50, 38))
