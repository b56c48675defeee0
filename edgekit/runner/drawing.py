"""Draw answers into their pictures with Pillow, for `predict --draw`: boxes, keypoints, masks, and distances.

Neighbouring classes get colours that colour-blind people can tell apart (Okabe and Ito 2008), and lines get patterns,
so that the pictures can be read in greyscale too.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edgekit.runner import input_path
from edgekit.runner.errors import InputError
from edgekit.runner.inputs.picture import import_pillow
from edgekit.runner.postprocess.anomaly import gives_map

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest, RawSpec
    from edgekit.runner.postprocess.anomaly import Anomaly
    from edgekit.runner.postprocess.detection import Detection
    from edgekit.runner.postprocess.segmentation import Segmentation

Colour = tuple[int, int, int]
Area = tuple[int, int, int, int]
"""Left, top, right and bottom in whole pixels. Right and bottom are exclusive."""
BLACK, WHITE = (0, 0, 0), (255, 255, 255)
COLOURS: tuple[Colour, ...] = (
    (240, 228, 66),
    (0, 114, 178),
    (86, 180, 233),
    (213, 94, 0),
    (204, 121, 167),
    (230, 159, 0),
    (0, 158, 115),
)
PATTERNS = ((1, 0), (6, 3), (2, 2), (6, 2, 2, 2))
"""Dash patterns: lengths of drawn and open parts in turn, in multiples of the line's thickness."""
HEAT: Colour = (213, 94, 0)
"""The colour of large distances."""
MAX_HEAT, PALE = 255, 120
PIXELS_PER_SCALE = 320
"""Length of a picture's shorter side at scale 1. Lines and letters of a picture twice as large are twice as large."""


class Style(NamedTuple):
    """A class's colour, the black or white that contrasts with it, and the dash pattern of its lines."""

    colour: Colour
    against: Colour
    pattern: tuple[int, ...]


def style_of_class(number: int) -> Style:
    """Return the style of a class by its number. The first 28 classes all have different styles."""
    colour = COLOURS[number % len(COLOURS)]
    return Style(colour, BLACK if luminance(colour) > 0.2 else WHITE, PATTERNS[number % len(PATTERNS)])


def luminance(colour: Colour) -> float:
    """Return the relative luminance, from 0 to 1 (ITU-R BT.709 of sRGB)."""
    red, green, blue = (
        channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4
        for channel in (value / 255 for value in colour)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def check_drawable(manifest: Manifest) -> None:
    """Raise InputError if the answers have no place in a picture, the samples are no pictures, or Pillow is missing."""
    if manifest.task not in DRAW_FUNCTIONS:
        raise InputError(
            f"--draw: the bundle answers with {manifest.task}, which cannot be drawn into a picture; only "
            f"{', '.join(DRAW_FUNCTIONS)} can"
        )
    if not has_place(manifest):
        raise InputError("--draw: the bundle reconstructs a picture, which does not show where an anomaly is")
    raw = manifest.raw
    if raw.kind != "image" or raw.dtype != "uint8":
        raise InputError(f"--draw: the bundle takes {raw.kind} {raw.dtype}{list(raw.shape)}, not pictures of bytes")
    import_pillow("--draw", "leave --draw out")


def has_place(manifest: Manifest) -> bool:
    """Whether the answers of a bundle have a place in the picture, so that `draw` can show them."""
    return manifest.task in DRAW_FUNCTIONS and (manifest.task != "anomaly" or gives_map(manifest))


def draw(picture: np.ndarray, answer: Any, manifest: Manifest) -> np.ndarray:
    """Return a copy of a picture uint8 (height, width, 3) with the answer drawn into it."""
    options: dict[str, Any] = {"skeleton": manifest.keypoints["skeleton"]} if manifest.keypoints else {}
    if manifest.task == "anomaly":
        options = {"raw": manifest.raw}
    return DRAW_FUNCTIONS[manifest.task](picture, answer, manifest.labels, **options)


def draw_boxes(
    picture: np.ndarray, answer: Detection, labels: Sequence[str], skeleton: Sequence[Sequence[int]] | None = None
) -> np.ndarray:
    """Draw boxes with their labels, the most probable on top. Labels do not cover one another if there is room.

    With a skeleton, which lists the indices of keypoints to join, the visible keypoints of each box are drawn, too.
    Masks of the objects are tinted half in their colours.
    """
    numbers = {label: number for number, label in enumerate(labels)}
    tinted = picture.copy()
    masked: list[Any] = [each for each in answer.boxes if hasattr(each, "mask_arguments")]
    for each in reversed(masked):
        colour = np.array(style_of_class(numbers[each.label]).colour, np.uint8)
        part, mask = tinted[each.mask.window], each.mask.pixels
        part[mask] = picture[each.mask.window][mask] // 2 + colour // 2
    canvas = _Canvas(tinted)
    visible = []
    for box in answer.boxes:
        left, top, right, bottom = (round(side) for side in box.box)
        left, top = min(max(left, 0), canvas.width - 1), min(max(top, 0), canvas.height - 1)
        area = left, top, min(max(right, left + 1), canvas.width), min(max(bottom, top + 1), canvas.height)
        visible.append((box, area, numbers[box.label]))
    for box, area, number in reversed(visible):
        canvas.outline(area, style_of_class(number))
        if skeleton is not None:
            canvas.skeleton(visible_points(box), skeleton, style_of_class(number))
    label_areas: list[Area] = []
    placed_labels = []
    for box, area, number in visible:
        text = caption(box.label, number, box.probability, canvas.fits)
        if text:
            label_areas.append(place_label(area, canvas.label_size(text), (canvas.width, canvas.height), label_areas))
            placed_labels.append((label_areas[-1], text, number))
    for label_area, text, number in reversed(placed_labels):
        canvas.label(label_area, text, style_of_class(number))
    return canvas.pixels()


def visible_points(box: Any) -> list[tuple[float, float] | None]:
    """Return x and y of each keypoint of a `DetectedPose`, in order; None for one that is not visible."""
    from edgekit.runner.keypoints import MIN_VISIBILITY

    return [(x, y) if seen >= MIN_VISIBILITY else None for x, y, seen in box.keypoints.values()]


def draw_masks(picture: np.ndarray, answer: Segmentation, labels: Sequence[str]) -> np.ndarray:
    """Tint each class's pixels half in its colour, draw its edges in full colour, and list the names at the left.

    The first class, the background, stays untinted. Names are listed as long as they fit.
    """
    mask = answer.mask
    colours = np.array([style_of_class(number).colour for number in range(len(labels))], np.uint8)[mask]
    edge = np.zeros(mask.shape, bool)
    edge[:, 1:] |= mask[:, 1:] != mask[:, :-1]
    edge[1:] |= mask[1:] != mask[:-1]
    coloured = np.where((mask > 0)[..., None], picture // 2 + colours // 2, picture)
    coloured[edge & (mask > 0)] = colours[edge & (mask > 0)]
    canvas = _Canvas(coloured)
    top = 0
    for number, (label, fraction) in enumerate(answer.shares.items()):
        text = caption(label, number, fraction, canvas.fits)
        if number and fraction and text:
            width, height = canvas.label_size(text)
            if top + height <= canvas.height:
                canvas.label((0, top, width, top + height), text, style_of_class(number))
                top += height
    return canvas.pixels()


def draw_distances(picture: np.ndarray, answer: Anomaly, labels: Sequence[str], raw: RawSpec) -> np.ndarray:
    """Tint the picture by the map of distances (`heat_levels`), and write the label with the score at the top left."""
    assert answer.map is not None
    height, width = picture.shape[:2]
    resize = input_path.find_step(raw.steps, "resize_picture")
    place, sides = input_path.PictureTransform(0, 0, width, height, 1.0, 1.0), (height, width)
    if resize is not None and resize["fit"] != "crop":
        place, sides = input_path.picture_transform((width, height), resize), (raw.shape[0], raw.shape[1])
    cells = answer.map.astype(np.float64)
    rows, columns = (
        _cell_positions(*each)
        for each in (
            (height, place.top, place.height, sides[0], cells.shape[0]),
            (width, place.left, place.width, sides[1], cells.shape[1]),
        )
    )
    middle = float(np.median(cells))
    across = _between(cells.T, *columns).T
    tinted = picture.copy()
    for y in range(height):  # row by row, because a photograph has millions of pixels
        distances = _between(across, rows[0][y : y + 1], rows[1][y : y + 1])[0]
        levels = heat_levels(distances, answer.threshold, middle)[:, None].astype(np.uint32)
        tinted[y] = (picture[y] * (2 * MAX_HEAT - levels) + np.array(HEAT, np.uint32) * levels) // (2 * MAX_HEAT)
    canvas = _Canvas(tinted)
    text = caption(answer.label, int(answer.is_anomaly), answer.score / answer.threshold, canvas.fits)
    if text and answer.threshold > 0:
        canvas.label((0, 0, *canvas.label_size(text)), text, style_of_class(int(answer.is_anomaly)))
    return canvas.pixels()


def draw_text(picture: np.ndarray, text: str, number: int, fraction: float | None = None) -> np.ndarray:
    """Write a label at the top left, on the colour of the class with this number, with a percentage if one is given.

    It is left out if it does not fit into the picture.
    """
    canvas = _Canvas(picture)
    short = caption(text, number, fraction, canvas.fits)
    if short:
        canvas.label((0, 0, *canvas.label_size(short)), short, style_of_class(number))
    return canvas.pixels()


def heat_levels(distances: np.ndarray, threshold: float, middle: float | None = None) -> np.ndarray:
    """Return levels from 0 to `MAX_HEAT`, uint8, for distances of any shape.

    Distances above the threshold have the highest level. The others rise from 0 at `middle`, by default the median, to
    `PALE` at the threshold.
    """
    middle = float(np.median(distances)) if middle is None else middle
    shares = ((distances - middle) / max(threshold - middle, 1e-9)).clip(0, 1)
    return np.where(distances > threshold, MAX_HEAT, PALE * shares).astype(np.uint8)


def _cell_positions(pixels: int, first: int, covered: int, side: int, cells: int) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each pixel of a picture's side, the cell before its centre and the fraction of the way to the next.

    The side becomes the `covered` pixels from `first` on of a sample's side, which the cells divide evenly.
    """
    in_sample = first + (np.arange(pixels) + 0.5) * covered / pixels
    position = (in_sample * cells / side - 0.5).clip(0, cells - 1)
    before = np.minimum(position.astype(np.int64), max(0, cells - 2))
    return before, position - before


def _between(values: np.ndarray, before: np.ndarray, fraction: np.ndarray) -> np.ndarray:
    """Return rows interpolated between the rows `before` and those after them."""
    after = np.minimum(before + 1, len(values) - 1)
    mixed: np.ndarray = values[before] * (1 - fraction)[:, None] + values[after] * fraction[:, None]
    return mixed


DRAW_FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "detection": draw_boxes,
    "keypoints": draw_boxes,
    "instance_masks": draw_boxes,
    "segmentation": draw_masks,
    "anomaly": draw_distances,
}
"""The function that draws a task's answers."""


def caption(label: str, number: int, fraction: float | None, fits: Callable[[str], bool]) -> str:
    """Return a label with a percentage, shortened until it fits: the label loses its end, the percentage is never cut.

    A fraction of None has no percentage. Accents are removed. A label in another alphabet is replaced by the number of
    its class.
    """
    letters = (letter for letter in unicodedata.normalize("NFKD", label) if not unicodedata.combining(letter))
    plain = "".join(letters)
    name = plain if plain and plain.isascii() and plain.isprintable() else f"#{number}"
    shortened = (f"{name[:end]}.." for end in range(len(name) - 1, 0, -1))
    percentage = "" if fraction is None else f"{fraction:.0%}"
    candidates = (*(f"{text} {percentage}".rstrip() for text in (name, *shortened)), percentage)
    return next(filter(fits, filter(None, candidates)), "")


def place_label(area: Area, size: tuple[int, int], picture: tuple[int, int], occupied: Sequence[Area]) -> Area:
    """Return the area for a box's label: above, below or inside the box, where it covers the fewest occupied pixels."""
    left, top, right, bottom = area
    width, height = size
    corners = ((left, top - height), (right - width, top - height), (left, bottom), (right - width, bottom))
    inside = ((x, y) for y in range(top, max(top, bottom - height) + 1, height) for x in (left, right - width))
    options = []
    for x, y in (*corners, *inside):
        x, y = max(0, min(x, picture[0] - width)), max(0, min(y, picture[1] - height))
        place = x, y, x + width, y + height
        covered = sum(overlap(place, each) for each in occupied)
        if not covered:
            return place
        options.append((covered, place))
    return min(options)[1]


def overlap(one: Area, other: Area) -> int:
    """Return the number of pixels that two areas share."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(0, width) * max(0, height)


class _Canvas:
    """A copy of a picture on which Pillow draws lines and letters at a size that suits the picture."""

    def __init__(self, picture: np.ndarray) -> None:
        from PIL import Image, ImageDraw, ImageFont

        self._image = Image.fromarray(np.ascontiguousarray(picture))
        self._draw = ImageDraw.Draw(self._image)
        bitmap_font = getattr(
            ImageFont, "load_default_imagefont", ImageFont.load_default
        )  # older Pillow has only one default font
        self._font: Any = bitmap_font()
        self.width, self.height = self._image.size
        self._scale = max(1, round(min(self._image.size) / PIXELS_PER_SCALE))

    def pixels(self) -> np.ndarray:
        """Return the picture with everything drawn so far."""
        return np.asarray(self._image)

    def outline(self, area: Area, style: Style) -> None:
        """Draw a line in the class's pattern, surrounded by a thin line that contrasts with it."""
        left, top, right, bottom = area
        thick, thin = 2 * self._scale, self._scale
        around = left - thin, top - thin, right + thin - 1, bottom + thin - 1
        self._draw.rectangle(around, outline=style.against, width=thick + thin)
        for start, end in _dashes(right - left, style.pattern, thick):
            for y in (top, max(top, bottom - thick)):
                self._fill((left + start, y, left + end, min(y + thick, bottom)), style.colour)
        for start, end in _dashes(bottom - top, style.pattern, thick):
            for x in (left, max(left, right - thick)):
                self._fill((x, top + start, min(x + thick, right), top + end), style.colour)

    def skeleton(
        self, points: Sequence[tuple[float, float] | None], lines: Sequence[Sequence[int]], style: Style
    ) -> None:
        """Draw lines and dots, each surrounded by a thin contrasting line. What belongs to no point is left out."""
        ends = [(points[start], points[end]) for start, end in lines]
        drawn = [(*start, *end) for start, end in ends if start and end]
        for colour, width in ((style.against, 4 * self._scale), (style.colour, 2 * self._scale)):
            for line in drawn:
                self._draw.line(line, fill=colour, width=width)
            radius = width / 2 + self._scale
            for x, y in filter(None, points):
                self._draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)

    def label_size(self, text: str) -> tuple[int, int]:
        """Return the width and height of a label with this text."""
        width, height = self._ink(text).size
        return width + 2 * self._scale, height + 2 * self._scale

    def fits(self, text: str) -> bool:
        """Whether a label with this text fits into the picture."""
        width, height = self.label_size(text)
        return width <= self.width and height <= self.height

    def label(self, area: Area, text: str, style: Style) -> None:
        """Write a text on its class's colour."""
        self._fill(area, style.colour)
        self._draw.bitmap((area[0] + self._scale, area[1] + self._scale), self._ink(text), fill=style.against)

    def _ink(self, text: str) -> Any:
        """Return a text in black and white, in Pillow's own font with each pixel enlarged."""
        from PIL import Image, ImageDraw

        _, _, width, _ = (int(side) for side in self._font.getbbox(text, "1"))
        _, top, _, bottom = (int(side) for side in self._font.getbbox("Agj|", "1"))
        image = Image.new("1", (width, bottom - top))
        ImageDraw.Draw(image).text((0, -top), text, fill=1, font=self._font)
        return image.resize((width * self._scale, (bottom - top) * self._scale))

    def _fill(self, area: Area, colour: Colour) -> None:
        left, top, right, bottom = area
        if left < right and top < bottom:
            self._draw.rectangle((left, top, right - 1, bottom - 1), fill=colour)


def _dashes(length: int, pattern: Sequence[int], thick: int) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each drawn part of a line."""
    start = 0
    for position, part in cycle(enumerate(pattern)):
        if start >= length:
            return
        end = min(start + part * thick, length)
        if position % 2 == 0:
            yield start, end
        start = end
