"""Detectors in their own packages: `python -m tests.heads.peer FOLDER KEY …`, with build/heads on the PYTHONPATH.

Each is built with random weights, exported to FOLDER/KEY/net.onnx, and run on FOLDER/images.npy. Its own postprocess
gives FOLDER/KEY/boxes.json: for each image a threshold, and rows of left, top, right, bottom, score and class.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.heads import torchvision_shim  # noqa: F401  before packages that import torchvision
from tests.heads.families import BY_KEY, CLASSES, FEW, MOST, OVERLAP, SIDE, Family

Rows = list[list[float]]
Peer = tuple[Callable[[torch.Tensor], Any], Callable[[Any, float], Rows]]
"""The network, and the postprocess of what it gives, from a threshold."""


def spread_scores(network: torch.nn.Module) -> None:
    """Give the last layers of a random network other weights, because its scores are otherwise all the same."""
    columns = (1, CLASSES, CLASSES + 1, 4, CLASSES + 32, 8 * (4 + CLASSES), 3 * (5 + CLASSES), 9 * CLASSES, 9 * 4)
    with torch.no_grad():
        for name, weights in network.named_parameters():
            if weights.ndim == 1 and name.endswith("bias") and len(weights) in columns:
                weights.copy_(torch.randn_like(weights) - 0.5)
            elif weights.ndim in (2, 4) and len(weights) in columns[1:]:
                weights.mul_(3)


def libreyolo(family: Family, folder: Path) -> Peer:
    import libreyolo as package

    known = {name.lower(): name for name in dir(package)}
    model = getattr(package, known[family.model.lower()])(None, size=family.size, nb_classes=CLASSES, device="cpu")
    network = model.model.eval()
    spread_scores(network)
    path = model.export("onnx", imgsz=SIDE, output_path=str(folder / "exported.onnx"), simplify=False)
    shutil.move(path, folder / "net.onnx")

    def postprocess(raw: Any, threshold: float) -> Rows:
        found = model._postprocess(
            raw, conf_thres=threshold, iou_thres=OVERLAP, original_size=(SIDE, SIDE), max_det=MOST,
            ratio=1.0, input_size=SIDE,
        )  # fmt: skip
        boxes, scores = np.array(found["boxes"]).reshape(-1, 4), np.array(found["scores"]).reshape(-1, 1)
        rows: Rows = np.concatenate([boxes, scores, np.array(found["classes"]).reshape(-1, 1)], axis=1).tolist()
        return rows

    return network, postprocess


def ultralytics(family: Family, folder: Path) -> Peer:
    from ultralytics import YOLO
    from ultralytics.nn.tasks import yaml_model_load
    from ultralytics.utils.nms import non_max_suppression

    config = folder / f"{family.model}.yaml"
    config.write_text(json.dumps({**yaml_model_load(f"{family.model}.yaml"), "nc": CLASSES}))
    model = YOLO(str(config), task="detect")
    head = model.model.model[-1]
    is_end_to_end = bool(getattr(head, "one2one_cv3", None))
    with torch.no_grad():
        for layers in (head.cv3, head.cv2, *([head.one2one_cv3, head.one2one_cv2] if is_end_to_end else [])):
            for each in layers:
                each[-1].bias.copy_(torch.randn_like(each[-1].bias) - 1)
                each[-1].weight.mul_(8)
    path = model.export(format="onnx", imgsz=SIDE, simplify=False, dynamic=False, nms=False if is_end_to_end else None)
    shutil.move(path, folder / "net.onnx")
    network = model.model.eval()
    network.end2end = is_end_to_end

    def postprocess(raw: Any, threshold: float) -> Rows:
        [found] = non_max_suppression(
            raw, threshold, OVERLAP, multi_label=True, max_det=MOST, nc=CLASSES, end2end=is_end_to_end,
            max_time_img=60,
        )  # fmt: skip
        rows: Rows = found.tolist()
        return rows

    return network, postprocess


class Logits(torch.nn.Module):
    """A detector of transformers with its two outputs."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = self.model(pixel_values=x)
        return found.logits, found.pred_boxes


def _transformers_network(model: str) -> tuple[torch.nn.Module, Any]:
    import transformers as package

    small = {"embedding_size": 8, "hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1], "layer_type": "basic"}
    common = {
        "num_labels": CLASSES,
        "num_queries": 100,
        "d_model": 32,
        "decoder_layers": 2,
        "decoder_attention_heads": 2,
    }
    if model == "yolos":
        config = package.YolosConfig(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=[SIDE, SIDE],
            num_detection_tokens=100, num_labels=CLASSES,
        )  # fmt: skip
        return package.YolosForObjectDetection(config), package.YolosImageProcessor()
    if model == "detr":
        backbone = package.ResNetConfig(**small, out_features=["stage4"])
        config = package.DetrConfig(
            use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, backbone_config=backbone, **common,
            encoder_layers=1, encoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32,
        )  # fmt: skip
        return package.DetrForObjectDetection(config), package.DetrImageProcessor()
    backbone = package.RTDetrResNetConfig(**small, out_features=["stage2", "stage3", "stage4"])
    config = package.RTDetrConfig(
        backbone_config=backbone, encoder_hidden_dim=32, encoder_in_channels=[8, 16, 16], encoder_ffn_dim=32,
        encoder_attention_heads=2, decoder_in_channels=[32, 32, 32], decoder_ffn_dim=32, num_denoising=0, **common,
    )  # fmt: skip
    return package.RTDetrForObjectDetection(config), package.RTDetrImageProcessor()


def transformers(family: Family, folder: Path) -> Peer:
    model, processor = _transformers_network(family.model)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if weights.ndim == 2 and ("class" in name or "bbox" in name):
                weights.normal_(0, 0.4)
    torch.onnx.export(
        Logits(model.eval()), (torch.zeros(1, 3, SIDE, SIDE),), folder / "net.onnx", dynamo=False, opset_version=17
    )

    def postprocess(raw: Any, threshold: float) -> Rows:
        [found] = processor.post_process_object_detection(raw, threshold=threshold, target_sizes=[(SIDE, SIDE)])
        columns = [found["boxes"], found["scores"][:, None], found["labels"][:, None].float()]
        rows: Rows = torch.cat(columns, 1).tolist()
        return rows

    return lambda image: model(pixel_values=image), postprocess


def few_boxes(boxes_from: Callable[[float], Rows], least: float) -> tuple[float, Rows]:
    """Return the highest threshold that leaves some boxes, by bisection, and these boxes."""
    low, high = max(least, 0.01), 1.0
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if len(boxes_from(middle)) >= FEW else (low, middle)
    return low, boxes_from(low)


PACKAGES = {"libreyolo": libreyolo, "ultralytics": ultralytics, "transformers": transformers}


def main(folder: Path, keys: list[str]) -> None:
    """Write the files of the module's text, or FOLDER/KEY/error.txt."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    images = torch.from_numpy(np.load(folder / "images.npy"))
    for key in keys:
        home = folder / key
        home.mkdir()
        os.chdir(home)  # some packages export into the working directory
        torch.manual_seed(0)
        try:
            family = BY_KEY[key]
            network, postprocess = PACKAGES[family.package](family, home)
            with torch.no_grad():
                outputs = [network(image[None]) for image in images]
                rows = [few_boxes(functools.partial(postprocess, raw), family.least) for raw in outputs]
            (home / "boxes.json").write_text(json.dumps(rows))
        except Exception as error:
            (home / "error.txt").write_text(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
