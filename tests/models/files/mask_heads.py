"""Small networks that predict masks of instances with the decoding of YOLO-seg, after its published formulas.

Each takes an image (1, 3, 64, 96), and has 32 prototypes on a grid of 16×24 cells. `decode` reads what a file gives, in
float64 and independently of edgekit.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import nn

from tests.data import diamonds
from tests.models.files.detector_heads import STRIDES, Backbone, cells, centres_of, exported, flat, from_centres

SIZE, COUNT, BEST = (64, 96), 32, 30
GRID = (16, 24)
POINTS = sum((SIZE[0] // stride) * (SIZE[1] // stride) for stride in STRIDES)

Answer = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Corners in pixels (rows, 4), probabilities (rows, classes), coefficients (rows, 32), prototypes (32, 16, 24)."""


class Masks(nn.Module):
    """YOLOv8-seg and YOLO11-seg: (1, 4 + classes + 32, points), and prototypes (1, 32, 16, 24)."""

    classes, bins = 3, 16

    def __init__(self) -> None:
        super().__init__()
        self.backbone = Backbone(4 * self.bins + self.classes + COUNT)
        self.points, self.steps = cells()
        self.stem = nn.Conv2d(3, COUNT, 7, 4, 3)

    def parts(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The corners, the logits and the coefficients."""
        boxes, logits, coefficients = self.rows(x).split([4 * self.bins, self.classes, COUNT], -1)
        if self.bins > 1:
            shares = boxes.reshape(*boxes.shape[:2], 4, self.bins).softmax(-1)
            boxes = (shares * torch.arange(self.bins).float()).sum(-1) * 0.3
        boxes = boxes.abs()
        before, after = boxes.chunk(2, -1)
        corners = torch.cat([self.points - before * self.steps, self.points + after * self.steps], -1)
        return corners, logits, coefficients

    def rows(self, x: torch.Tensor) -> torch.Tensor:
        return flat(self.backbone(x))

    def prototypes(self, x: torch.Tensor) -> torch.Tensor:
        return self.stem(x).sigmoid() - 0.5  # type: ignore[no-any-return]

    def forward(self, x: torch.Tensor) -> Any:
        corners, logits, coefficients = self.parts(x)
        table = torch.cat([centres_of(corners), logits.sigmoid(), coefficients], -1).transpose(1, 2)
        return table, self.prototypes(x)


class Shares(Masks):
    """The same with coordinates as shares of the image and channels last, as Ultralytics exports it to TFLite."""

    def forward(self, x: torch.Tensor) -> Any:
        corners, logits, coefficients = self.parts(x)
        centres = centres_of(corners) / torch.tensor([96.0, 64, 96, 64])
        table = torch.cat([centres, logits.sigmoid(), coefficients], -1).transpose(1, 2)
        return table, self.prototypes(x).permute(0, 2, 3, 1)


class PrototypesFirst(Masks):
    """The same with the outputs in the other order, as converters may leave them."""

    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x)[::-1]


class EndToEnd(Masks):
    """YOLO26-seg: (1, 30, 6 + 32), the best boxes with score, class and coefficients, and the prototypes."""

    bins = 1

    def forward(self, x: torch.Tensor) -> Any:
        corners, logits, coefficients = self.parts(x)
        values, places = logits.sigmoid().flatten(1).topk(BEST, 1)
        rows = (places // self.classes).unsqueeze(-1)
        boxes, weights = (each.gather(1, rows.repeat(1, 1, each.shape[2])) for each in (corners, coefficients))
        kinds = (places % self.classes).unsqueeze(-1).float()
        return torch.cat([boxes, values.unsqueeze(-1), kinds, weights], -1), self.prototypes(x)


class Known(Masks):
    """A network that always finds the two diamonds of `diamonds.pictures(…, fixed=True)`, whatever the picture shows.

    A little of the features of the picture is added to its tables, so that converters treat it like other networks.
    """

    classes, bins = 2, 1

    def __init__(self) -> None:
        super().__init__()
        table = torch.full((POINTS, 4 + self.classes + COUNT), 1.0)
        table[:, 4:6] = -6.0
        table[:, 6:] = 0.0
        prototypes = torch.zeros((COUNT, *GRID))
        for number, each in enumerate(diamonds.fixed_diamonds()):
            row = int((self.points - torch.tensor([each.x, each.y])).abs().sum(1).argmin())
            place, step = self.points[row], float(self.steps[row])
            sides = torch.tensor(each.box)
            table[row, :4] = torch.cat([place - sides[:2], sides[2:] - place]) / step
            table[row, 4 + each.kind] = 3.0
            table[row, 6 + number] = 2.0
            y, x = np.mgrid[: GRID[0], : GRID[1]] * 4 + 2.0
            reach = 1 - np.abs(x - each.x) / each.across - np.abs(y - each.y) / each.down
            prototypes[number] = torch.from_numpy(reach.clip(-1)).float()
        self.register_buffer("table", table[None])
        self.register_buffer("shapes", prototypes[None])

    def rows(self, x: torch.Tensor) -> torch.Tensor:
        return super().rows(x) * 1e-3 + self.table

    def prototypes(self, x: torch.Tensor) -> torch.Tensor:
        return super().prototypes(x) * 1e-3 + self.shapes


def save_known(path: Path) -> Path:
    """Write the file of `Known`, with the metadata that Ultralytics' exporter leaves."""
    model = onnx.load_model_from_string(exported(Known))
    names = dict(enumerate(diamonds.CLASSES))
    facts = {"task": "segment", "stride": "32", "imgsz": "[64, 96]", "names": str(names)}
    onnx.helper.set_model_props(model, facts)
    onnx.save(model, path)
    return path


@dataclass(frozen=True)
class Family:
    """`words` are in the description of the outputs of a file."""

    build: type[Masks]
    words: tuple[str, ...]
    is_suppressed: bool = False

    @property
    def name(self) -> str:
        return self.build.__name__

    def decode(self, outputs: list[np.ndarray]) -> Answer:
        if self.build is PrototypesFirst:
            outputs = outputs[::-1]
        table, prototypes = (each[0].astype(np.float64) for each in outputs)
        prototypes = prototypes.transpose(2, 0, 1) if self.build is Shares else prototypes
        classes = self.build.classes
        if self.build is EndToEnd:
            boxes, scores = table[:, :4], np.eye(classes)[table[:, 5].astype(int)] * table[:, 4:5]
        else:
            table = table.T
            scale = [96, 64, 96, 64] if self.build is Shares else [1, 1, 1, 1]
            boxes, scores = from_centres(table[:, :4] * scale), table[:, 4 : 4 + classes]
        return boxes, scores, table[:, -COUNT:], prototypes


FAMILIES = (
    Family(Masks, ("centres and sizes in pixels", "probabilities", "with 32 coefficients of masks")),
    Family(Shares, ("centres and sizes as shares", "with 32 coefficients of masks")),
    Family(PrototypesFirst, ("centres and sizes in pixels", "with 32 coefficients of masks")),
    Family(EndToEnd, ("finished boxes: corners in pixels", "with 32 coefficients of masks"), is_suppressed=True),
)
