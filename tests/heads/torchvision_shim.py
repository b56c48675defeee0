"""Let torchvision be imported without its compiled operators, which its wheel has for a GPU's torch only.

Importing the module defines `nms` by its definition, and the names of the other operators, which no detector here uses.
"""

from __future__ import annotations

import torch

LIBRARY = torch.library.Library("torchvision", "DEF")
UNUSED = (
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width, "
    "int sampling_ratio, bool aligned) -> Tensor",
    "ps_roi_align(Tensor input, Tensor rois, float a, int b, int c, int d) -> (Tensor, Tensor)",
    "roi_pool(Tensor input, Tensor rois, float a, int b, int c) -> (Tensor, Tensor)",
    "ps_roi_pool(Tensor input, Tensor rois, float a, int b, int c) -> (Tensor, Tensor)",
    "deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, int a, int b, int c, int d, "
    "int e, int f, int g, int h, bool i) -> Tensor",
    *(
        f"_{name}_backward(Tensor a, Tensor b) -> Tensor"
        for name in ("roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d")
    ),
)


def nms(boxes: torch.Tensor, scores: torch.Tensor, overlap: float) -> torch.Tensor:
    """Greedy suppression by its definition."""
    order, kept = scores.argsort(descending=True, stable=True), []
    left, top, right, bottom = boxes.unbind(1)
    areas = (right - left) * (bottom - top)
    while order.numel():
        first, order = order[0], order[1:]
        kept.append(first)
        width = (torch.minimum(right[first], right[order]) - torch.maximum(left[first], left[order])).clamp(min=0)
        height = (torch.minimum(bottom[first], bottom[order]) - torch.maximum(top[first], top[order])).clamp(min=0)
        shared = width * height
        order = order[shared / (areas[first] + areas[order] - shared) <= overlap]
    return torch.stack(kept) if kept else torch.empty(0, dtype=torch.int64)


LIBRARY.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
LIBRARY.impl("nms", nms, "CPU")
for signature in UNUSED:
    LIBRARY.define(signature)
import torchvision.extension  # noqa: E402  the operators must be defined first
import torchvision.ops.boxes  # noqa: E402

torchvision.extension._has_ops = lambda: True
torchvision.extension._assert_has_ops = lambda: None
torchvision.ops.boxes._assert_has_ops = lambda: None
