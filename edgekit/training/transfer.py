"""Train a network that starts from trained weights: a slower backbone, which may be frozen in the first epochs."""

from __future__ import annotations

from torch import nn

from edgekit.core.pretrained import Pretrained
from edgekit.models.pretrained import backbone_names


class Backbone:
    """The part of a network that has trained weights, and what happens to it in each epoch.

    Its learning rate is that of the last layer times `rate`. While it is frozen, its weights do not change, and its
    batch norms use the statistics that they came with, because those of a small data set are poor (Yosinski et al.
    2014, "How transferable are features in deep neural networks?").
    """

    def __init__(self, module: nn.Module, pretrained: Pretrained) -> None:
        names = set(backbone_names(module))
        self.rate, self._options = pretrained.backbone_rate, pretrained
        named_parameters = dict(module.named_parameters())
        self._parameters = [each for name, each in named_parameters.items() if name in names and each.requires_grad]
        self._norms = [
            layer
            for name, layer in module.named_modules()
            if isinstance(layer, nn.modules.batchnorm._BatchNorm) and f"{name}.running_mean" in names
        ]
        self._ids = {id(each) for each in self._parameters}

    def __contains__(self, parameter: nn.Parameter) -> bool:
        return id(parameter) in self._ids

    def begin_epoch(self, epoch: int) -> None:
        """Freeze or unfreeze the backbone for an epoch, which is counted from 1; call it after `module.train()`."""
        is_frozen = epoch <= self._options.freeze_epochs
        for parameter in self._parameters:
            parameter.requires_grad_(not is_frozen)
        if is_frozen or self._options.freeze_norms:
            for norm in self._norms:
                norm.eval()

    def end(self) -> None:
        """Make all parameters trainable again."""
        for parameter in self._parameters:
            parameter.requires_grad_(True)
