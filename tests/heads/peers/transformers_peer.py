"""Detectors of transformers, run in the environment of the peers: see `peer.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import calibration
import numpy as np
import peer
import torch
import transformers
from torch import nn

RESNET = {"depths": [1, 1, 1, 1], "hidden_sizes": [32, 64, 128, 256], "embedding_size": 16, "layer_type": "bottleneck"}
GRIDS = {"out_features": ["stage2", "stage3", "stage4"]}
LAYERS = {"encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 256, "decoder_ffn_dim": 256}
RT_DETR = {
    "backbone_config": {"model_type": "rt_detr_resnet", **RESNET, **GRIDS},
    "encoder_in_channels": [64, 128, 256],
    **LAYERS,
}
QUERIES = 100


@dataclass(frozen=True)
class Network:
    """A network and how it is exported.

    Attributes
    ----------
    name, processor
        The beginnings of the names of the classes of the network and its processor.
    options
        The options of the network, which make it small.
    has_background
        Whether the scores are a softmax with a background.
    dynamo
        Whether PyTorch's newer exporter takes the network.
    """

    name: str
    processor: str
    options: dict[str, Any]
    has_background: bool = False
    dynamo: bool = True


NETWORKS = {
    "rt-detr": Network("RTDetr", "RTDetr", RT_DETR),
    "rt-detr v2": Network("RTDetrV2", "RTDetr", RT_DETR, dynamo=False),
    "d-fine": Network("DFine", "RTDetr", RT_DETR, dynamo=False),
    "detr": Network("Detr", "Detr", {
        "backbone_config": {"model_type": "resnet", **RESNET}, **LAYERS,
    }, has_background=True),
    "deformable detr": Network("DeformableDetr", "DeformableDetr", {
        "backbone_config": {"model_type": "resnet", **RESNET, **GRIDS}, "disable_custom_kernels": True, **LAYERS,
    }),
    "yolos": Network("Yolos", "Yolos", {
        "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 128,
    }, has_background=True),
}  # fmt: skip


class Answers(nn.Module):
    """The logits and the boxes of a network, which are its outputs in a file."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixel_values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        outputs = self.network(pixel_values=pixel_values)
        return outputs.logits, outputs.pred_boxes


def answer(job: peer.Job) -> peer.Answers:
    """Export a network of transformers, and return what its processor makes of the answers."""
    parts = NETWORKS[job.network]
    config = getattr(transformers, f"{parts.name}Config")(
        num_labels=len(job.labels), **parts.options, **_sizes(parts, job)
    )
    network = getattr(transformers, f"{parts.name}ForObjectDetection")(config).eval()
    processor = getattr(transformers, f"{parts.processor}ImageProcessor")()
    _vary(network)
    job.log(f"made, {sum(each.numel() for each in network.parameters()) / 1e6:.1f} M parameters")

    def prepared(pictures: np.ndarray) -> torch.Tensor:
        pixels: torch.Tensor = processor(list(pictures), do_resize=False, return_tensors="pt")["pixel_values"]
        return pixels

    inputs = prepared(np.load(job.file.parent / "calibration.npy"))
    run = lambda: network(inputs)  # noqa: E731
    calibration.set_norms(network, run)
    calibration.spread(_last_layers(network, parts), run)
    job.log("calibrated")
    torch.onnx.export(
        Answers(network).eval(), (inputs[:1],), str(job.file), input_names=["pixel_values"],
        output_names=["logits", "pred_boxes"], dynamo=parts.dynamo, verbose=False,
        **({"external_data": False} if parts.dynamo else {"opset_version": 17}),
    )  # fmt: skip
    job.log("exported")

    def predict(picture: np.ndarray, overlap: float) -> peer.Boxes:
        with torch.no_grad():
            outputs = network(prepared(picture[None]))
        [found] = processor.post_process_object_detection(outputs, threshold=job.least, target_sizes=[job.size])
        columns = [found["boxes"], found["scores"][:, None], found["labels"][:, None]]
        boxes: peer.Boxes = torch.cat(columns, dim=1).tolist()
        return boxes

    return peer.answers(f"transformers {transformers.__version__}", job, predict)


def _vary(network: nn.Module) -> None:
    """Draw weights again, in place, that are so small that all queries would give the same box."""
    with torch.no_grad():
        for name, weight in network.named_parameters():
            is_embedding = "token" in name or "position_embed" in name
            if is_embedding or (name.endswith("weight") and weight.ndim == 2 and weight.any()):
                nn.init.normal_(weight, std=1.0 if is_embedding else weight.shape[1] ** -0.5)


def _sizes(parts: Network, job: peer.Job) -> dict[str, Any]:
    if parts.name == "Yolos":
        return {"image_size": job.size, "num_detection_tokens": QUERIES}
    return {"num_queries": QUERIES}


def _last_layers(network: nn.Module, parts: Network) -> dict[nn.Module, list[calibration.Channels]]:
    """Return how the channels of the last layers are spread."""
    if parts.has_background:
        layer, boxes = network.class_labels_classifier, network.bbox_predictor
        channels = [calibration.classes(0.0, 3.0), calibration.Channels(1, (3.0,))]
        return {
            layer.layers[-1] if parts.name == "Yolos" else layer: channels,  # type: ignore[union-attr, index, dict-item]
            boxes.layers[-1]: [calibration.Channels(4, (0.0, 0.0, -1.5, -1.5))],  # type: ignore[union-attr, index, dict-item]
        }
    layers = network.class_embed if parts.name == "DeformableDetr" else network.model.decoder.class_embed  # type: ignore[union-attr]
    return {layers[-1]: [calibration.classes(mean=-2.5)]}  # type: ignore[index, dict-item]


if __name__ == "__main__":
    peer.main(answer)
