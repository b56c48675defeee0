"""Small networks that predict keypoints with the decoding of YOLO-pose, after its published formulas.

Each takes an image (1, 3, 64, 96), and every box has five keypoints. `decode` reads what a file gives, in float64 and
independently of edgekit.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import nn

from tests.data import posed
from tests.models.files.detector_heads import STRIDES, Backbone, cells, centres_of, exported, flat, from_centres

SIZE, COUNT, BEST = (64, 96), 5, 30
POINTS = sum((SIZE[0] // stride) * (SIZE[1] // stride) for stride in STRIDES)

Answer = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Corners in pixels (rows, 4), probabilities (rows, classes), keypoints (rows, 5, 3) of x, y and probability."""


class Pose(nn.Module):
    """YOLOv8-pose and YOLO11-pose: (1, 4 + classes + 15, points), the visibility behind a sigmoid."""

    classes, columns, bins, factor, summand = 1, 3, 16, 2.0, -0.5
    strides = STRIDES

    def __init__(self) -> None:
        super().__init__()
        self.backbone = Backbone(4 * self.bins + self.classes + self.columns * COUNT, self.strides)
        self.points, self.steps = cells(self.strides)

    def parts(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The corners, the logits, and the keypoints as they are given."""
        boxes, logits, raw = self.rows(x).split([4 * self.bins, self.classes, self.columns * COUNT], -1)
        if self.bins > 1:
            shares = boxes.reshape(*boxes.shape[:2], 4, self.bins).softmax(-1)
            boxes = (shares * torch.arange(self.bins).float()).sum(-1) * 0.1
        before, after = boxes.chunk(2, -1)
        corners = torch.cat([self.points - before * self.steps, self.points + after * self.steps], -1)
        values = raw.reshape(*raw.shape[:2], COUNT, self.columns)
        centres, steps = self.points[:, None] / self.steps[:, None], self.steps[:, None]
        points = [(values[..., :2] * self.factor + (centres + self.summand)) * steps]
        return corners, logits, torch.cat([*points, values[..., 2:].sigmoid()], -1).flatten(2)

    def rows(self, x: torch.Tensor) -> torch.Tensor:
        return flat(self.backbone(x))

    def forward(self, x: torch.Tensor) -> Any:
        corners, logits, keypoints = self.parts(x)
        return torch.cat([centres_of(corners), logits.sigmoid(), keypoints], -1).transpose(1, 2)


class SeveralClasses(Pose):
    """The same with three classes."""

    classes = 3


class WithoutVisibility(Pose):
    """The same with x and y alone."""

    columns = 2


class Shares(Pose):
    """The same with coordinates as shares of the image, as Ultralytics exports it to TFLite."""

    def forward(self, x: torch.Tensor) -> Any:
        corners, logits, keypoints = self.parts(x)
        size = torch.tensor([96.0, 64, 96, 64])
        keypoints = keypoints / torch.tensor([96.0, 64, 1]).repeat(COUNT)
        return torch.cat([centres_of(corners) / size, logits.sigmoid(), keypoints], -1).transpose(1, 2)


class EndToEnd(Pose):
    """YOLO26-pose: (1, 30, 6 + 15), the best boxes with score, class and keypoints, and keypoints of another scale."""

    classes, bins, factor, summand = 2, 1, 1.0, 0.0

    def forward(self, x: torch.Tensor) -> Any:
        corners, logits, keypoints = self.parts(x)
        values, places = logits.sigmoid().flatten(1).topk(BEST, 1)
        rows = (places // self.classes).unsqueeze(-1)
        boxes, points = (each.gather(1, rows.repeat(1, 1, each.shape[2])) for each in (corners, keypoints))
        kinds = (places % self.classes).unsqueeze(-1).float()
        return torch.cat([boxes, values.unsqueeze(-1), kinds, points], -1)


class Known(Pose):
    """A network that always finds the two crosses of `posed.pictures(…, fixed=True)`, whatever the picture shows.

    A little of the features of the picture is added to its tables, so that converters treat it like other networks.
    """

    bins = 1

    def __init__(self) -> None:
        super().__init__()
        table = torch.full((POINTS, 4 + self.classes + self.columns * COUNT), 1.0)
        table[:, 4] = -6.0
        for cross in posed.fixed_crosses():
            points = torch.from_numpy(cross.points[:, :2]).float()
            row = int((self.points - points[0]).abs().sum(1).argmin())
            place, step = self.points[row], float(self.steps[row])
            sides = torch.tensor(cross.box)
            table[row, :4] = torch.cat([place - sides[:2], sides[2:] - place]) / step
            table[row, 4] = 3.0
            raw = torch.cat([((points - place) / step - self.summand) / self.factor, torch.full((COUNT, 1), 3.0)], 1)
            table[row, 5:] = raw.flatten()
        self.register_buffer("table", table[None])

    def rows(self, x: torch.Tensor) -> torch.Tensor:
        return super().rows(x) * 1e-3 + self.table


class Blaze(nn.Module):
    """BlazeFace: boxes and keypoints (1, points, 14), in pixels from the centres of cells; logits (1, points, 1)."""

    classes, columns, grids = 1, 2, ((8, 2), (16, 6))
    """The strides of its grids, with the number of points in a cell."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = Backbone(6 * (4 + 2 * COUNT + 1), [stride for stride, _ in self.grids])

    def forward(self, x: torch.Tensor) -> Any:
        width = 4 + 2 * COUNT + 1
        levels = [
            level[:, : count * width].permute(0, 2, 3, 1).reshape(1, -1, width)
            for level, (_, count) in zip(self.backbone(x), self.grids, strict=True)
        ]
        places, sides, points, logits = torch.cat(levels, 1).split([2, 2, 2 * COUNT, 1], -1)
        return torch.cat([places * 4, sides.abs() * 8, points * 4], -1), logits * 3


def save_known(path: Path) -> Path:
    """Write the file of `Known`, with the metadata that Ultralytics' exporter leaves."""
    model = onnx.load_model_from_string(exported(Known))
    facts = {"task": "pose", "stride": "32", "imgsz": "[64, 96]", "names": "{0: 'cross'}", "kpt_shape": "[5, 3]"}
    onnx.helper.set_model_props(model, facts)
    onnx.save(model, path)
    return path


@dataclass(frozen=True)
class Family:
    """`is_cut` says whether a file is cut before its decoding, and `words` are in the description of its outputs."""

    build: type[Pose] | type[Blaze]
    words: tuple[str, ...]
    is_cut: bool = True
    is_suppressed: bool = False

    @property
    def name(self) -> str:
        return self.build.__name__

    def decode(self, outputs: list[np.ndarray]) -> Answer:
        if self.build is Blaze:
            return self._decode_blaze(*outputs)
        table = outputs[0][0].astype(np.float64)
        table = table if self.build is EndToEnd else table.T
        columns, classes = self.build.columns, self.build.classes
        if self.build is EndToEnd:
            boxes, scores = table[:, :4], np.eye(classes)[table[:, 5].astype(int)] * table[:, 4:5]
        else:
            scale = [96, 64, 96, 64] if self.build is Shares else [1, 1, 1, 1]
            boxes, scores = from_centres(table[:, :4] * scale), table[:, 4 : 4 + classes]
        points = table[:, -columns * COUNT :].reshape(-1, COUNT, columns)
        points = points * [96, 64, 1] if self.build is Shares else points
        seen = points[..., 2:] if columns == 3 else np.ones((*points.shape[:2], 1))
        return boxes, scores, np.concatenate([points[..., :2], seen], 2)

    def _decode_blaze(self, table: np.ndarray, logits: np.ndarray) -> Answer:
        centres = np.array(
            [
                ((x + 0.5) * stride, (y + 0.5) * stride)
                for stride, count in Blaze.grids
                for y in range(SIZE[0] // stride)
                for x in range(SIZE[1] // stride)
                for _ in range(count)
            ]
        )
        places = table[0].astype(np.float64).reshape(len(centres), -1, 2)
        boxes = from_centres(np.concatenate([places[:, 0] + centres, places[:, 1]], 1))
        points = np.concatenate([places[:, 2:] + centres[:, None], np.ones((len(centres), COUNT, 1))], 2)
        return boxes, 1 / (1 + np.exp(-logits[0].astype(np.float64))), points


FAMILIES = (
    Family(Pose, ("centres and sizes in pixels", "probabilities", "with 5 keypoints")),
    Family(SeveralClasses, ("centres and sizes in pixels", "with 5 keypoints")),
    Family(WithoutVisibility, ("centres and sizes in pixels", "with 5 keypoints")),
    Family(Shares, ("centres and sizes as shares", "with 5 keypoints")),
    Family(Blaze, ("centres and sizes in pixels from prior boxes", "logits", "with 5 keypoints"), is_cut=False),
    Family(EndToEnd, ("finished boxes: corners in pixels", "with 5 keypoints"), is_suppressed=True),
)
