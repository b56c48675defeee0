"""A network's feature maps: the last map of each spatial size, before the next downsampling."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from edgekit.core.errors import ModelError


class Features:
    """Inside `with Features(module, input_shape) as features:`, `features()` returns the maps of the last forward pass.

    They are tensors (N, C, H, W) in order of execution, without maps of 1x1. For windows, whose maps are (N, C, time),
    H is 1. A map is recorded when any module returns it, for example a block with its residual addition. Not recorded
    are operations between modules, inside a `forward`, and what `nn.ZeroPad2d` returns, which is a map with a border.
    """

    def __init__(self, module: nn.Module, input_shape: tuple[int, ...], ids: bool = False) -> None:
        """`input_shape` is (C, H, W) or (time, channels), without the batch, or (tokens,) with `ids`."""
        self.module, self.input_shape = module, input_shape
        self._dtype = torch.int32 if ids else torch.float32
        self._maps: dict[tuple[int, int], Tensor] = {}
        self._hooks: list[Any] = []

    def __enter__(self) -> Features:
        """Hook the module and run it once on zeros, in eval mode; raise ModelError if it returns no feature map."""
        self._hooks = [self.module.register_forward_pre_hook(self._forget)]
        self._hooks += [part.register_forward_hook(self._keep) for part in self.module.modules()]
        try:
            self._try()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self._maps = {}

    def __call__(self) -> tuple[Tensor, ...]:
        """Return the maps of the last forward pass; before the first one, those of one sample of zeros."""
        return tuple(self._maps.values())

    def _forget(self, *_: object) -> None:
        self._maps = {}

    def _keep(self, module: nn.Module, _: object, output: object) -> None:
        if isinstance(module, nn.ZeroPad2d):
            return
        if isinstance(output, Tensor) and output.ndim == 3 and len(self.input_shape) == 2:
            output = output.unsqueeze(2)
        if isinstance(output, Tensor) and output.ndim == 4 and output.shape[2:] != (1, 1):
            size = (output.shape[2], output.shape[3])
            self._maps.pop(size, None)  # so that a later map of the same size is put at the end, in order of execution
            self._maps[size] = output

    def _try(self) -> None:
        was_training = self.module.training
        device = next((parameter.device for parameter in self.module.parameters()), torch.device("cpu"))
        self.module.eval()
        try:
            with torch.no_grad():
                self.module(torch.zeros(1, *self.input_shape, dtype=self._dtype, device=device))
        finally:
            self.module.train(was_training)
        if not self._maps:
            raise ModelError(
                f"{type(self.module).__name__}: no layer gives feature maps (N, C, H, W) of more than one pixel for "
                f"an input of {self.input_shape}, so there are none to compare; choose a loss that compares logits"
            )
