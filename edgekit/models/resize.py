"""Give a network's layers the sizes of stored tensors: how a structurally pruned network is rebuilt."""

from __future__ import annotations

import torch
from torch import nn

Shape = tuple[int, ...]


def resize(module: nn.Module, shapes: dict[str, Shape]) -> None:
    """Replace every parameter and buffer whose size differs and put the layers' own record of it right.

    Values of replaced tensors are undefined until a state is loaded.
    """
    for prefix, layer in module.named_modules():
        before = {name: tuple(tensor.shape) for name, tensor in _own(layer).items()}
        wanted = {name: shapes.get(f"{prefix}.{name}" if prefix else name, before[name]) for name in before}
        if wanted == before:
            continue
        for name, shape in wanted.items():
            if shape != before[name]:
                _replace(layer, name, shape)
        _describe(layer, wanted)


def _own(layer: nn.Module) -> dict[str, torch.Tensor]:
    tensors = dict(layer.named_parameters(recurse=False))
    return tensors | dict(layer.named_buffers(recurse=False))


def _replace(layer: nn.Module, name: str, shape: Shape) -> None:
    old = getattr(layer, name)
    new = torch.empty(shape, dtype=old.dtype, device=old.device)
    setattr(layer, name, nn.Parameter(new, requires_grad=old.requires_grad) if isinstance(old, nn.Parameter) else new)


def _describe(layer: nn.Module, shapes: dict[str, Shape]) -> None:
    """Layers read some of their sizes at run time (groups, num_features), the others tell the user the truth."""
    if isinstance(layer, nn.modules.conv._ConvNd):
        _describe_convolution(layer, shapes["weight"])
    elif isinstance(layer, nn.Linear):
        layer.out_features, layer.in_features = shapes["weight"]
    elif isinstance(layer, nn.modules.batchnorm._NormBase):
        layer.num_features = next(iter(shapes.values()))[0]
    elif isinstance(layer, nn.GroupNorm):
        layer.num_channels = shapes["weight"][0]
    elif isinstance(layer, nn.LayerNorm):
        layer.normalized_shape = shapes["weight"]
    elif isinstance(layer, nn.PReLU):
        layer.num_parameters = shapes["weight"][0]
    elif isinstance(layer, nn.Embedding):
        layer.num_embeddings, layer.embedding_dim = shapes["weight"]


def _describe_convolution(layer: nn.modules.conv._ConvNd, weight: Shape) -> None:
    if layer.transposed:
        layer.in_channels, layer.out_channels = weight[0], weight[1] * layer.groups
        return
    if layer.groups > 1 and layer.groups == layer.in_channels:  # depthwise: the groups follow the channels
        layer.groups = weight[0] // (layer.out_channels // layer.in_channels)
    layer.in_channels, layer.out_channels = weight[1] * layer.groups, weight[0]
