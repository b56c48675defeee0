"""Save and restore networks that NNCF quantized, bit for bit and without a pickle.

A saved network is a folder with `config.json`, which says where the quantizers are, and `state.safetensors`, which
holds every tensor: weights, statistics and ranges. To restore the network, the float network that
`edgekit.models.store` saved is loaded, and quantized as the two files say.
"""

from __future__ import annotations

import functools
import inspect
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nncf.torch
from nncf.torch.extensions import ExtensionNamespace
from nncf.torch.quantization import quantize_functions
from nncf.torch.quantization.reference import torch_executor
from safetensors import SafetensorError
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as serialise_tensors
from torch import Tensor, nn

from edgekit.core.errors import ModelError
from edgekit.core.hashing import write_json
from edgekit.models import store
from edgekit.models.several_inputs import SeveralInputs
from edgekit.runner.files import write_atomically

FORMAT = 1
CONFIG = "config.json"
STATE = "state.safetensors"
QUANTIZERS = ("nncf.torch.quantization.layers",)
PREFIX = "network."


class _EagerKernels:
    Quantize_forward = staticmethod(torch_executor.forward)
    Quantize_backward = staticmethod(torch_executor.backward)


def _use_eager_kernels() -> None:
    """Use NNCF's operators in plain PyTorch instead of C++ that is compiled at first use.

    The C++ kernels need a compiler, which takes half a minute the first time, and they are no faster on small networks.
    They also round differently from the plain ones, and a result must not depend on whether a machine has g++.
    """
    for namespace in (quantize_functions.QuantizedFunctionsCPU, quantize_functions.QuantizedFunctionsCUDA):
        if isinstance(namespace, ExtensionNamespace):
            namespace._loaded_namespace = _EagerKernels


_use_eager_kernels()


class Quantizable(nn.Module):
    """A wrapper around a network for NNCF: (N, *input_shape) -> what the network returns.

    NNCF adds its hooks as a child of the root module. A Sequential as the root would call that child like a layer.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Any:
        return self.network(x)


def quantizable(network: nn.Module) -> Quantizable:
    """Wrap a network for NNCF. With several inputs, NNCF sees each of them, so that each gets its own range."""
    if isinstance(network, SeveralInputs):
        return _several_inputs_class(len(network.tensors))(network)
    return Quantizable(network)


@functools.cache
def _several_inputs_class(count: int) -> type[Quantizable]:
    """Return a class that is called with one vector (N, width), while its `forward` has an argument for each tensor.

    NNCF hooks named arguments only.
    """

    class OfSeveral(Quantizable):
        network: SeveralInputs

        def __call__(self, *inputs: Tensor) -> Any:
            return super().__call__(*(self.network.arguments(inputs[0]) if len(inputs) == 1 else inputs))

        def forward(self, *inputs: Tensor) -> Any:
            return self.network.network(*inputs)

    names = ["self", *(f"tensor_{index}" for index in range(count))]
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    OfSeveral.forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return OfSeveral


def arguments(quantizable: nn.Module, x: Tensor) -> Tensor | tuple[Tensor, ...]:
    """Return the arguments with which NNCF traces a network, for samples (N, …): one tensor, or several."""
    inner = quantizable.network
    return inner.arguments(x) if isinstance(inner, SeveralInputs) else x


def float_state(quantized: nn.Module) -> dict[str, Tensor]:
    """Return the float tensors of a quantized network under the names that they have in the plain network."""
    state = quantized.state_dict()
    return {name[len(PREFIX) :]: value for name, value in state.items() if name.startswith(PREFIX)}


def save(folder: Path, quantized: nn.Module) -> None:
    """Write `config.json` and `state.safetensors`; equal networks give equal bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in quantized.state_dict().items()}
    config = nncf.torch.get_config(quantized)
    # sorted by name, because NNCF's own order comes from sets
    commands = sorted(config["compression_state"], key=lambda command: command["hook_names_in_model"])
    write_atomically(folder / STATE, serialise_tensors(tensors))
    write_json(folder / CONFIG, {"format": FORMAT, "compression_state": commands})


def rebuild(model_folder: Path, nncf_folder: Path) -> nn.Module:
    """Restore the quantized network, bit-equal to the saved one, in eval mode on the CPU.

    `openvino.convert_model` takes it unmodified. Pass the static shape too (`input=[1, C, H, W]`), because OpenVINO's
    CPU plug-in has no kernel for some quantized layers of unknown size.

    Raises
    ------
    ModelError
        A file cannot be read, or does not fit the network in `model_folder`.
    """
    module, _ = store.load(model_folder)
    config = _read_config(nncf_folder / CONFIG)
    tensors = _read_tensors(nncf_folder / STATE)
    try:
        quantized = nncf.torch.load_from_config(quantizable(module), config, allowed_modules=QUANTIZERS)
        quantized.load_state_dict(tensors)
    except (nncf.InternalError, RuntimeError, KeyError, TypeError, ValueError) as error:
        raise ModelError(
            f"{nncf_folder}: does not fit the network in {model_folder} ({error}); run stage 'quantize' again"
        ) from None
    return quantized.eval()


@dataclass(frozen=True)
class QuantizedParts:
    """The parts of a quantized network that can be sent to another process. NNCF's own objects cannot be pickled."""

    network: nn.Module
    config: dict[str, Any]
    state: dict[str, Tensor]

    @classmethod
    def from_network(cls, quantized: nn.Module) -> QuantizedParts:
        """Take apart a network that `quantizable` wrapped and NNCF quantized."""
        network: Any = quantized.network
        return cls(network, nncf.torch.get_config(quantized), quantized.state_dict())

    def rebuild(self) -> nn.Module:
        """Rebuild the quantized network; the order of its parameters may differ."""
        quantized = nncf.torch.load_from_config(quantizable(self.network), self.config, allowed_modules=QUANTIZERS)
        quantized.load_state_dict(self.state)
        return quantized


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if config.pop("format") > FORMAT:
            raise ModelError(f"{path}: written by a newer edgekit; update this one")
        return config
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{path}: not the state of a quantized model ({error}); run stage 'quantize' again") from None


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return parse_tensors(path.read_bytes())
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise ModelError(f"{path}: cannot be read ({error}); run stage 'quantize' again") from None
