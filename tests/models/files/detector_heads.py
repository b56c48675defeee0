"""Small networks whose last layers decode boxes as published detectors do, after the formulas of their papers.

Each takes an image (1, 3, 64, 96) and knows three classes. `decode` reads what a file of the family gives, in float64
and independently of edgekit.
"""

from __future__ import annotations

import functools
import io
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

SIZE, CLASSES = (64, 96), 3
STRIDES = (8, 16, 32)
SCALE = np.array([96, 64, 96, 64])
POINTS = sum((SIZE[0] // stride) * (SIZE[1] // stride) for stride in STRIDES)
ANCHORS = (((10, 13), (16, 30), (33, 23)), ((30, 61), (62, 45), (59, 119)), ((116, 90), (156, 198), (373, 326)))
"""Widths and heights in pixels, as YOLOv5 has them for pictures."""
QUERIES = 19
CORNERS, CENTRES = "corners", "centres"

Answer = tuple[np.ndarray, np.ndarray]
"""Corners in pixels (rows, 4), and a probability for each class (rows, classes)."""


class Backbone(nn.Module):
    """Features of three grids, whose values depend on the image."""

    def __init__(self, columns: int, strides: Sequence[int] = STRIDES, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.stems = nn.ModuleList(nn.Conv2d(3, 16, 2 * stride - 1, stride, stride - 1) for stride in strides)
        self.heads = nn.ModuleList(nn.Conv2d(16, columns, 1) for _ in strides)
        for stem, head in zip(self.stems, self.heads, strict=True):
            nn.init.normal_(stem.weight, std=0.6 / math.sqrt(stem.weight[0].numel()) * 4)  # type: ignore[arg-type, index, operator, union-attr]
            nn.init.normal_(head.weight, std=0.5)  # type: ignore[arg-type]
            nn.init.normal_(head.bias, std=0.5)  # type: ignore[arg-type]

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [head(torch.relu(stem(x))) for stem, head in zip(self.stems, self.heads, strict=True)]


def cells(strides: Sequence[int] = STRIDES, anchors: int = 1, offset: float = 0.5) -> tuple[torch.Tensor, torch.Tensor]:
    """The points (n, 2) of the cells in pixels and their strides (n, 1), grid by grid."""
    points, widths = [], []
    for stride in strides:
        rows, columns = -(-SIZE[0] // stride), -(-SIZE[1] // stride)
        y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        points.append(((torch.stack([x, y], -1).reshape(-1, 2) + offset) * stride).repeat(anchors, 1))
        widths.append(torch.full((rows * columns * anchors, 1), float(stride)))
    return torch.cat(points).float(), torch.cat(widths)


def flat(levels: list[torch.Tensor]) -> torch.Tensor:
    """(1, points, columns) of features (1, columns, rows, columns)."""
    return torch.cat([level.flatten(2) for level in levels], 2).transpose(1, 2)


def centres_of(corners: torch.Tensor) -> torch.Tensor:
    start, end = corners.chunk(2, -1)
    return torch.cat([(start + end) / 2, end - start], -1)


def corners_of(centres: torch.Tensor) -> torch.Tensor:
    middle, sides = centres.chunk(2, -1)
    return torch.cat([middle - sides / 2, middle + sides / 2], -1)


class Anchors(nn.Module):
    """YOLOv5 and YOLOv7: (1, points, 5 + classes), boxes by sigmoids relative to anchors, and an objectness."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = Backbone(3 * (5 + CLASSES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        results = []
        for level, stride, pairs in zip(self.backbone(x), STRIDES, ANCHORS, strict=True):
            rows, columns = level.shape[2:]
            values = level.view(1, 3, 5 + CLASSES, rows, columns).permute(0, 1, 3, 4, 2).contiguous().sigmoid()
            y, x_ = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
            cell = torch.stack([x_, y], -1).view(1, 1, rows, columns, 2).float() - 0.5
            sides = torch.tensor(pairs).float().view(1, 3, 1, 1, 2)
            place = (values[..., :2] * 2 + cell) * stride
            size = (values[..., 2:4] * 2) ** 2 * sides
            results.append(torch.cat([place, size, values[..., 4:]], -1).view(1, -1, 5 + CLASSES))
        return torch.cat(results, 1)


class Distances(nn.Module):
    """YOLOv8, v9, v11 and v12: (1, 4 + classes, points), distances as means of distributions, sigmoid scores."""

    bins, points_last, kind, reach = 16, True, CENTRES, 1.0

    def __init__(self) -> None:
        super().__init__()
        self.backbone = Backbone(4 * self.bins + CLASSES)
        self.points, self.strides = cells()

    def boxes_and_logits(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        boxes, logits = flat(self.backbone(x)).split([4 * self.bins, CLASSES], -1)
        if self.bins > 1:
            shares = (boxes.view(1, POINTS, 4, self.bins) * 2).softmax(-1)
            boxes = (shares * torch.arange(self.bins).float()).sum(-1) * 0.3
        if self.reach != 1:
            boxes = boxes.abs() * self.reach
        before, after = boxes.chunk(2, -1)
        corners = torch.cat([self.points - before * self.strides, self.points + after * self.strides], -1)
        return (corners if self.kind == CORNERS else centres_of(corners)), logits

    def forward(self, x: torch.Tensor) -> Any:
        boxes, logits = self.boxes_and_logits(x)
        table = torch.cat([boxes, logits.sigmoid()], -1)
        return table.transpose(1, 2) if self.points_last else table


class Corners(Distances):
    """As PicoDet, RTMDet and YOLOv6: (1, points, 4 + classes), corners in pixels."""

    bins, points_last, kind = 1, False, CORNERS


class CoarsestFirst(Corners):
    """The same with the coarsest grid first."""

    def forward(self, x: torch.Tensor) -> Any:
        counts = [(SIZE[0] // stride) * (SIZE[1] // stride) for stride in STRIDES]
        return torch.cat(super().forward(x).split(counts, 1)[::-1], 1)


class ShiftedIfBright(Corners):
    """The same, but boxes lie elsewhere in bright images, which noise is not."""

    reach = 0.8

    def forward(self, x: torch.Tensor) -> Any:
        boxes, logits = self.boxes_and_logits(x)
        return torch.cat([boxes + 20 * (x.mean() > 0.6).float(), logits.sigmoid()], -1)


class LessLikelyIfBright(Corners):
    """The same, but boxes are less probable in bright images."""

    reach = 0.8

    def forward(self, x: torch.Tensor) -> Any:
        boxes, logits = self.boxes_and_logits(x)
        return torch.cat([boxes, logits.sigmoid() * (1 - 0.5 * (x.mean() > 0.6).float())], -1)


class TwoOutputs(Corners):
    """As PP-YOLOE and YOLO-NAS: corners (1, points, 4) and probabilities (1, points, classes)."""

    def forward(self, x: torch.Tensor) -> Any:
        boxes, logits = self.boxes_and_logits(x)
        return boxes, logits.sigmoid()


class EndToEnd(Distances):
    """YOLOv10 and YOLO26: (1, 30, 6), the best boxes with score and class, without suppression."""

    bins, kind = 1, CORNERS

    def forward(self, x: torch.Tensor) -> Any:
        boxes, logits = self.boxes_and_logits(x)
        scores = logits.sigmoid()
        best = scores.amax(-1).topk(30, 1)[1].unsqueeze(-1)
        boxes, scores = boxes.gather(1, best.repeat(1, 1, 4)), scores.gather(1, best.repeat(1, 1, CLASSES))
        values, places = scores.flatten(1).topk(30, 1)
        boxes = boxes.gather(1, (places // CLASSES).unsqueeze(-1).repeat(1, 1, 4))
        return torch.cat([boxes, values.unsqueeze(-1), (places % CLASSES).unsqueeze(-1).float()], -1)


class NearEndToEnd(EndToEnd):
    """The same with smaller boxes, which do not reach far beyond the image."""

    reach = 0.3


class WithThreshold(NearEndToEnd):
    """As a file with suppression inside: rows below a threshold are zero."""

    def forward(self, x: torch.Tensor) -> Any:
        table = super().forward(x)
        return table * (table[..., 4:5] > 0.9)


class Selected(NearEndToEnd):
    """All of the best boxes but one, as if that one had been suppressed."""

    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x)[:, 1:]


class FromOne(NearEndToEnd):
    """The classes are numbered from one."""

    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x) + torch.tensor([0, 0, 0, 0, 0, 1.0])


class FromTwo(FromOne):
    """The classes are numbered from two, so that one of them is unknown."""

    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x) + torch.tensor([0, 0, 0, 0, 0, 1.0])


class Candidates(NearEndToEnd):
    """EfficientDet of libreyolo: thousands of boxes with score and class before any suppression."""

    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x).repeat(1, 40, 1)


class Exponential(nn.Module):
    """YOLOX with its decoding: (1, points, 5 + classes), centres, sizes, objectness and classes after a sigmoid."""

    is_decoded = True

    def __init__(self) -> None:
        super().__init__()
        self.backbone = Backbone(5 + CLASSES)
        self.corners, self.strides = cells(offset=0.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        levels = [torch.cat([each[:, :4] * 0.3, each[:, 4:].sigmoid()], 1) for each in self.backbone(x)]
        table = flat(levels)
        if not self.is_decoded:
            return table
        place = table[..., :2] * self.strides + self.corners
        return torch.cat([place, table[..., 2:4].exp() * self.strides, table[..., 4:]], -1)


class UndecodedExponential(Exponential):
    """YOLOX as its own exporter writes it by default: offsets and logarithms, and probabilities."""

    is_decoded = False


class Distributions(nn.Module):
    """NanoDet-Plus: (1, points, classes + 32), sigmoid scores and the logits of distributions of distances."""

    strides: Sequence[int] = (8, 16, 32, 64)

    def __init__(self) -> None:
        super().__init__()
        self.backbone = Backbone(CLASSES + 32, self.strides)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        levels = [torch.cat([e[:, :CLASSES].sigmoid(), e[:, CLASSES:]], 1) for e in self.backbone(x)]
        return flat(levels)


class ThreeGrids(Distributions):
    """NanoDet, whose points are the centres of cells."""

    strides = STRIDES


class Priors(nn.Module):
    """RetinaNet: (1, points, 4 + classes), corners from nine anchors in each cell."""

    anchors = 9

    def __init__(self) -> None:
        super().__init__()
        self.backbone = Backbone(self.anchors * (4 + CLASSES))
        self.priors = torch.cat([self._grid(stride) for stride in STRIDES])

    def _grid(self, stride: int) -> torch.Tensor:
        points, _ = cells([stride])
        shapes = torch.tensor(
            [
                [stride * 2 ** (scale / 3) * ratio**-0.5, stride * 2 ** (scale / 3) * ratio**0.5]
                for ratio in (0.5, 1.0, 2.0)
                for scale in range(3)
            ]
        )
        return torch.cat([points[:, None].repeat(1, 9, 1), shapes[None].repeat(len(points), 1, 1)], -1).reshape(-1, 4)

    def boxes_and_logits(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        columns = 4 + CLASSES
        table = torch.cat([e.permute(0, 2, 3, 1).reshape(1, -1, columns) for e in self.backbone(x)], 1)
        deltas, middle, sides = table[..., :4] * 0.1, self.priors[:, :2], self.priors[:, 2:]
        return corners_of(torch.cat([deltas[..., :2] * sides + middle, deltas[..., 2:].exp() * sides], -1)), table[
            ..., 4:
        ]

    def forward(self, x: torch.Tensor) -> Any:
        boxes, logits = self.boxes_and_logits(x)
        return torch.cat([boxes, logits.sigmoid()], -1)


class Softmax(nn.Module):
    """SSD: corners as shares of the image, and a softmax with the background first."""

    background, gives_probabilities = 0, True

    def __init__(self) -> None:
        super().__init__()
        self.backbone = Backbone(6 * (5 + CLASSES), STRIDES[1:])
        self.points, self.strides = cells(STRIDES[1:], 6)

    def forward(self, x: torch.Tensor) -> Any:
        table = torch.cat([each.reshape(1, 5 + CLASSES, -1) for each in self.backbone(x)], 2).transpose(1, 2)
        deltas, scores = table[..., :4] * 0.5, table[..., 4:] * 2
        scores = scores + 4 * (torch.arange(1 + CLASSES) == self.background)
        middle = deltas[..., :2] * self.strides + self.points
        boxes = (
            corners_of(torch.cat([middle, deltas[..., 2:].exp() * self.strides], -1)) / torch.from_numpy(SCALE).float()
        )
        return boxes.clamp(0, 1), scores.softmax(-1) if self.gives_probabilities else scores


class SetOfBoxes(nn.Module):
    """DETR: logits (1, queries, classes + 1) with "no object" last, and centres and sizes as shares of the image."""

    has_background = True

    def __init__(self) -> None:
        super().__init__()
        self.backbone = Backbone(16, STRIDES[1:2])
        torch.manual_seed(1)
        self.queries = nn.Linear(16 * 24, QUERIES * (4 + CLASSES + self.has_background))
        nn.init.normal_(self.queries.weight, std=0.08)

    def forward(self, x: torch.Tensor) -> Any:
        table = self.queries(self.backbone(x)[0].flatten(1)).view(1, QUERIES, -1)
        logits, boxes = table[..., 4:], table[..., :4].sigmoid()
        if self.has_background:
            logits = logits + 3 * (torch.arange(1 + CLASSES) == CLASSES)
        return logits, boxes * torch.tensor([1, 1, 0.6, 0.6])


class SetWithoutBackground(SetOfBoxes):
    """RT-DETR and D-FINE: logits (1, queries, classes) for sigmoids."""

    has_background = False


class Undecoded(nn.Module):
    """What edgekit's own detectors give: distances in strides and logits, which need no conversion."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = Backbone(4 + CLASSES)

    def forward(self, x: torch.Tensor) -> Any:
        table = flat(self.backbone(x))
        return table[..., :4].abs(), table[..., 4:]


class Ambiguous(Corners):
    """(1, points, 5 + classes): an objectness and logits, or a softmax with a background."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        boxes, logits = self.boxes_and_logits(x)
        return torch.cat([boxes.clamp(0, 64), logits[..., :1] - 1, logits], -1)


class Rotated(Distances):
    """(1, 5 + classes, points), the last column an angle, as YOLO-OBB gives it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        boxes, logits = self.boxes_and_logits(x)
        return torch.cat([boxes, logits.sigmoid(), logits[..., :1]], -1).transpose(1, 2)


class OtherClasses(Corners):
    """(1, points, 4 + classes) and (1, points, 11): one of the outputs belongs to no head."""

    def forward(self, x: torch.Tensor) -> Any:
        boxes, logits = self.boxes_and_logits(x)
        return torch.cat([boxes, logits], -1), torch.cat([boxes, boxes, logits], -1)


@dataclass(frozen=True)
class Family:
    """`cut_code` is the code of the boxes after the cut, "" without a head, and None if the file is not cut."""

    name: str
    build: Callable[[], nn.Module]
    decode: Callable[[list[np.ndarray]], Answer]
    cut_code: str | None
    words: Sequence[str] = field(default=())
    is_suppressed: bool = False


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def softmax(x: np.ndarray) -> np.ndarray:
    weights = np.exp(x - x.max(-1, keepdims=True))
    shares: np.ndarray = weights / weights.sum(-1, keepdims=True)
    return shares


def from_centres(table: np.ndarray) -> np.ndarray:
    return np.concatenate([table[:, :2] - table[:, 2:] / 2, table[:, :2] + table[:, 2:] / 2], 1)


def _columns(outputs: list[np.ndarray]) -> np.ndarray:
    table = outputs[0][0].astype(np.float64)
    return table.T if len(table) < 16 else table


def _centres(outputs: list[np.ndarray]) -> Answer:
    table = _columns(outputs)
    return from_centres(table[:, :4]), table[:, 4:]


def _corners(outputs: list[np.ndarray]) -> Answer:
    table = np.concatenate([each[0] for each in outputs], 1).astype(np.float64)
    return table[:, :4], table[:, 4:]


def _objectness(outputs: list[np.ndarray]) -> Answer:
    table = _columns(outputs)
    return from_centres(table[:, :4]), table[:, 4:5] * table[:, 5:]


def _undecoded(outputs: list[np.ndarray]) -> Answer:
    table = _columns(outputs)
    corners, strides = (each.double().numpy() for each in cells(offset=0.0))
    centres = np.concatenate([table[:, :2] * strides + corners, np.exp(table[:, 2:4]) * strides], 1)
    return from_centres(centres), table[:, 4:5] * table[:, 5:]


def _distributions(offset: float, strides: Sequence[int]) -> Callable[[list[np.ndarray]], Answer]:
    def decode(outputs: list[np.ndarray]) -> Answer:
        table = outputs[0][0].astype(np.float64)
        points, widths = (each.double().numpy() for each in cells(strides, offset=offset))
        sides = softmax(table[:, CLASSES:].reshape(-1, 4, 8)) @ np.arange(8) * widths
        return np.concatenate([points - sides[:, :2], points + sides[:, 2:]], 1), table[:, :CLASSES]

    return decode


def finished(outputs: list[np.ndarray]) -> Answer:
    table = _columns(outputs)
    return table[:, :4], np.eye(CLASSES)[table[:, 5].astype(int)] * table[:, 4:5]


def _softmax(outputs: list[np.ndarray]) -> Answer:
    return outputs[0][0] * SCALE, outputs[1][0, :, 1:].astype(np.float64)


def _softmax_logits(outputs: list[np.ndarray]) -> Answer:
    return outputs[0][0] * SCALE, softmax(outputs[1][0].astype(np.float64))[:, 1:]


def _set(outputs: list[np.ndarray]) -> Answer:
    logits = outputs[0][0].astype(np.float64)
    scores = softmax(logits)[:, :CLASSES] if logits.shape[1] > CLASSES else sigmoid(logits)
    return from_centres(outputs[1][0] * SCALE), scores


class SoftmaxLogits(Softmax):
    """SSD without its softmax."""

    gives_probabilities = False


FAMILIES = (
    Family("YOLOv5", Anchors, _objectness, "anchors", ("centres and sizes in pixels", "objectness", "probabilities")),
    Family("YOLOv8", Distances, _centres, "", ("centres and sizes in pixels", "probabilities")),
    Family("PicoDet", Corners, _corners, "", ("corners in pixels", "probabilities")),
    Family("Coarsest grid first", CoarsestFirst, _corners, "", ("corners in pixels", "probabilities")),
    Family("PP-YOLOE", TwoOutputs, _corners, "", ("corners in pixels", "probabilities")),
    Family("YOLOv10", EndToEnd, finished, "", ("finished boxes", "corners in pixels"), True),
    Family("YOLOX", Exponential, _objectness, "exponential", ("centres and sizes in pixels", "objectness")),
    Family("YOLOX, undecoded", UndecodedExponential, _undecoded, "exponential", ("offsets from cells", "objectness")),
    Family("NanoDet-Plus", Distributions, _distributions(0.0, (8, 16, 32, 64)), "distances", ("distributions",)),
    Family("NanoDet", ThreeGrids, _distributions(0.5, STRIDES), "distances", ("distributions",)),
    Family("RetinaNet", Priors, _corners, None, ("corners in pixels", "probabilities")),
    Family("SSD", Softmax, _softmax, None, ("corners as shares", "probabilities with a background")),
    Family("SSD, logits", SoftmaxLogits, _softmax_logits, None, ("corners as shares", "softmax with a background")),
    Family("DETR", SetOfBoxes, _set, None, ("centres and sizes as shares", "softmax with a background"), True),
    Family("RT-DETR", SetWithoutBackground, _set, None, ("centres and sizes as shares", "logits"), True),
)


@functools.cache
def exported(build: Callable[[], nn.Module], dynamo: bool = False) -> bytes:
    """The network as an ONNX file, by PyTorch's older exporter or the newer one."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            build().eval(), (torch.zeros(1, 3, *SIZE),), buffer, dynamo=dynamo, verbose=False,
            **({"external_data": False} if dynamo else {"opset_version": 17}),
        )  # fmt: skip
    return buffer.getvalue()


def images(count: int = 4) -> np.ndarray:
    """Images (count, 3, 64, 96) with blocks of a value, unlike the noise for which a file is recognised."""
    blocks = np.random.default_rng(7).random((count, 3, 8, 12), dtype=np.float32)
    return blocks.repeat(8, axis=2).repeat(8, axis=3)
