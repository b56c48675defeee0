"""Detectors of libreyolo, run in the environment of the peers: see `peer.py`."""

from __future__ import annotations

import re
from dataclasses import dataclass

import libreyolo
import numpy as np
import peer
import torch
from calibration import Channels, classes, distributions, set_norms, sides, spread
from PIL import Image
from torch import nn

Layers = dict[str, list[Channels]]
"""Patterns of the names of the last layers of a head, with how their channels are spread."""


@dataclass(frozen=True)
class Network:
    """A class of libreyolo, one of its sizes, and the last layers of its head."""

    name: str
    size: str
    layers: Layers


NETWORKS = {
    "yolox": Network("LibreYOLOX", "n", {
        r".*cls_preds\.\d": [classes(-4.0, 1.5)], r".*obj_preds\.\d": [Channels(1, (1.0,))],
        r".*reg_preds\.\d": [sides(0.0, 0.5)],
    }),
    "yolo7": Network("LibreYOLO7", "b", {
        r".*head_conv": [sides(), Channels(1, (1.0,), 2.0), classes(-5.0)],
    }),
    "yolo9": Network("LibreYOLO9", "t", {
        r"head\.cv3\.\d\.2": [classes()], r"head\.cv2\.\d\.2": [distributions(16)],
    }),
    "yolo9_e2e": Network("LibreYOLO9E2E", "t", {
        r"head\.one2one_cv3\.\d\.2": [classes()], r"head\.one2one_cv2\.\d\.2": [distributions(16)],
    }),
    "yolonas": Network("LibreYOLONAS", "s", {
        r".*cls_pred": [classes()], r".*reg_pred": [distributions(17)],
    }),
    "picodet": Network("LibrePICODET", "s", {r"head\.gfl_cls\.\d": [classes(), distributions(8)]}),
    "ppyoloe": Network("LibrePPYOLOE", "s", {
        r"head\.pred_cls\.\d": [classes()], r"head\.pred_reg\.\d": [distributions(17)],
    }),
    "rtmdet": Network("LibreRTMDet", "t", {
        r"head\.rtm_cls\.\d": [classes()], r"head\.rtm_reg\.\d": [sides(2.5, 0.5)],
    }),
    "dfine": Network("LibreDFINE", "n", {r".*dec_score_head\.\d": [classes(-2.5)]}),
    "rtdetr": Network("LibreRTDETR", "r18", {r".*dec_score_head\.\d": [classes(-2.5)]}),
    "ssd": Network("LibreSSD", "300", {
        r".*classification_head\.module_list\.\d": [Channels(1, (8.0,), 1.0), classes(0.0)],
        r".*regression_head\.module_list\.\d": [sides()],
    }),
    "retinanet": Network("LibreRetinaNet", "r50", {r".*cls_logits": [classes(-6.0)], r".*bbox_reg": [sides(0.0, 0.5)]}),
    "fcos": Network("LibreFCOS", "r50", {
        r".*cls_logits": [classes(-7.5)], r".*bbox_reg": [sides(1.0, 0.5)], r".*bbox_ctrness": [Channels(1, (1.0,))],
    }),
    "efficientdet": Network("LibreEfficientDet", "d0", {
        r".*class_net\.predict.*": [classes(-6.0)], r".*box_net\.predict.*": [sides(0.0, 0.5)],
    }),
}  # fmt: skip


def answer(job: peer.Job) -> peer.Answers:
    """Export a network of libreyolo, and return what the package finds with it."""
    network = NETWORKS[job.network]
    # The package's own command makes untrained networks with this function, which downloads no weights.
    model = getattr(libreyolo, network.name)._from_scratch(size=network.size, nb_classes=len(job.labels), device="cpu")
    model.model.eval()
    size = job.size[0] if job.size[0] == job.size[1] else job.size
    prepare = model._get_preprocess_numpy()
    batches = [
        torch.from_numpy(
            np.stack(
                [
                    prepare(picture, size)[0].reshape(3, *job.size)
                    for picture in batch.permute(0, 2, 3, 1).byte().numpy()
                ]
            )
        )
        for batch in job.batches()
    ]
    run = lambda: [model.model(batch) for batch in batches]  # noqa: E731
    set_norms(model.model, run)
    spread(_last_layers(model.model, network.layers), run)
    job.log("calibrated")
    model.export(format="onnx", imgsz=size, simplify=False, dynamic=False, output_path=str(job.file))
    job.log("exported")

    def predict(picture: np.ndarray, overlap: float) -> peer.Boxes:
        found = model.predict(Image.fromarray(picture), imgsz=size, conf=job.least, iou=overlap, max_det=job.most).boxes
        if not len(found.conf):
            return []
        columns = [torch.as_tensor(each).reshape(len(found.conf), -1) for each in (found.xyxy, found.conf, found.cls)]
        boxes: peer.Boxes = torch.cat(columns, dim=1).tolist()
        return boxes

    return peer.answers(f"libreyolo {libreyolo.__version__}", job, predict)


def _last_layers(model: nn.Module, layers: Layers) -> dict[nn.Module, list[Channels]]:
    """Return the layers whose names match the patterns.

    Raises LookupError with all names if there is no layer for a pattern.
    """
    named = {name: layer for name, layer in model.named_modules() if getattr(layer, "bias", None) is not None}
    found = {pattern: [layer for name, layer in named.items() if re.fullmatch(pattern, name)] for pattern in layers}
    if not all(found.values()):
        raise LookupError(f"{list(layers)}: {', '.join(named)}")
    return {layer: layers[pattern] for pattern, each in found.items() for layer in each}


if __name__ == "__main__":
    peer.main(answer)
