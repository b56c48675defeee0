"""Start a network from trained weights: read a checkpoint, and copy what fits the network's backbone.

The backbone is everything except the last layer, or the submodule `backbone` of a network that has one. All of it must
be found in the checkpoint. Tensors are matched by name. If the names differ, as in another implementation of the same
network, they are matched by order, kind and shape, which have to agree for every tensor of the backbone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from edgekit.core.errors import ModelError
from edgekit.core.pretrained import Pretrained

WRAPPERS = ("state_dict", "model_state_dict", "model", "model_ema", "ema_state_dict")
"""Keys under which training scripts save the weights, beside the state of the optimizer and other things."""
PREFIXES = ("module.", "_orig_mod.", "model.", "backbone.")
"""Prefixes that wrappers such as DataParallel and torch.compile add to all names."""
COUNTER = "num_batches_tracked"
"""The last part of the names of counters, which inference never reads and many exporters leave out."""
SHOWN_NAMES = 4
BACKBONE = "backbone"


@dataclass(frozen=True)
class WeightsReport:
    """Which tensors of a network came from a checkpoint.

    `renamed` maps the network's name of a tensor to its name in the file, for tensors whose names differ. `new` are
    tensors of the network that keep their initial values, and `left` tensors of the file that are not used.
    """

    title: str
    licence: str | None
    sha256: str
    taken: int
    renamed: dict[str, str]
    new: tuple[str, ...]
    left: tuple[str, ...]

    def row(self) -> dict[str, Any]:
        """Return the report as it is recorded."""
        return asdict(self)

    def __str__(self) -> str:
        renamed = [f"{theirs} as {ours}" for ours, theirs in self.renamed.items()]
        parts = [
            f"{self.taken} tensors from {self.title} (licence: {self.licence or 'unknown'})",
            f"matched by order: {_shortened(renamed)}" if renamed else "",
            f"new: {_shortened(self.new)}" if self.new else "",
            f"not used: {_shortened(self.left)}" if self.left else "",
        ]
        return "; ".join(part for part in parts if part)


def load_backbone(module: nn.Module, pretrained: Pretrained) -> WeightsReport:
    """Copy trained weights into the backbone of `module`, and into its last layer if that has the same shape.

    Raises
    ------
    ModelError
        The checkpoint cannot be read, has NaN or infinite values, or is that of another network.
    """
    path = pretrained.path
    checkpoint = _without_prefixes(read_checkpoint(path))
    state = {name: tensor for name, tensor in module.state_dict().items() if not name.endswith(COUNTER)}
    backbone = backbone_names(module)
    matches = _match_by_name(state, backbone, checkpoint) or _match_by_order(state, backbone, checkpoint, path)
    matches |= _match_rest(state, checkpoint, matches)
    infinite = [theirs for theirs in matches.values() if not bool(torch.isfinite(checkpoint[theirs]).all())]
    if infinite:
        raise ModelError(f"{path.name}: NaN or infinite values in {_shortened(infinite)}; use other weights")
    with torch.no_grad():
        for ours, theirs in matches.items():
            state[ours].copy_(checkpoint[theirs])
    return WeightsReport(
        title=pretrained.title,
        licence=pretrained.licence,
        sha256=pretrained.sha256 or "",
        taken=len(matches),
        renamed={ours: theirs for ours, theirs in matches.items() if _is_renamed(ours, theirs)},
        new=tuple(name for name in state if name not in matches),
        left=tuple(name for name in checkpoint if name not in set(matches.values())),
    )


def backbone_names(module: nn.Module) -> list[str]:
    """Return the names of the backbone's tensors in order: those of `module.backbone`, or all but the last layer's."""
    names = [name for name in module.state_dict() if not name.endswith(COUNTER)]
    if isinstance(getattr(module, BACKBONE, None), nn.Module):
        return [name for name in names if name.startswith(f"{BACKBONE}.")]
    last_layer = names[-1].rpartition(".")[0] if names else ""
    return [name for name in names if name.rpartition(".")[0] != last_layer]


def read_checkpoint(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a .safetensors file, or of a file of torch.save, in which no code is allowed to run.

    Raises
    ------
    ModelError
        The file cannot be read, contains more than weights, or contains no tensors.
    """
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ModelError(f"{path.name}: cannot be read ({error.strerror})") from None
    except SafetensorError as error:
        raise ModelError(f"{path.name}: not a safetensors file ({error}); save it with safetensors.torch") from None
    except Exception as error:  # damaged files raise many classes of exceptions, those with code UnpicklingError
        if "weights_only" in str(error) or "Weights only load failed" in str(error):
            raise ModelError(
                f"{path.name}: contains Python objects besides tensors, which could run code when they are loaded; "
                "save the state dict alone: torch.save(net.state_dict(), path)"
            ) from None
        reason = " ".join(str(error).split())[:120]
        raise ModelError(f"{path.name}: not a checkpoint of torch.save ({type(error).__name__}: {reason})") from None
    for wrapper in WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
    tensors = {str(name): each for name, each in content.items() if isinstance(each, Tensor)} if isinstance(
        content, Mapping) else {}  # fmt: skip
    if not tensors:
        raise ModelError(f"{path.name}: contains no state dict; save one with torch.save(net.state_dict(), path)")
    return tensors


def _without_prefixes(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors without the counters of batch norms, and without prefixes that all names share."""
    named = {name: each for name, each in tensors.items() if not name.endswith(COUNTER)}
    for prefix in PREFIXES:
        if all(name.startswith(prefix) for name in named):
            named = {name.removeprefix(prefix): each for name, each in named.items()}
    return named


def _match_by_name(
    state: Mapping[str, Tensor], backbone: Sequence[str], checkpoint: Mapping[str, Tensor]
) -> dict[str, str]:
    """Return the name in the checkpoint for each name of the backbone; empty unless all names and shapes agree."""
    for prefix in ("", f"{BACKBONE}."):
        matches = {name: name.removeprefix(prefix) for name in backbone}
        if all(theirs in checkpoint and _fits(state[ours], checkpoint[theirs]) for ours, theirs in matches.items()):
            return matches
    return {}


def _match_by_order(
    state: Mapping[str, Tensor], backbone: Sequence[str], checkpoint: Mapping[str, Tensor], path: Path
) -> dict[str, str]:
    """Return the name in the checkpoint for each name of the backbone; raise ModelError at the first that differs."""
    if path.suffix == ".safetensors":
        missing = next(name for name in backbone if name not in checkpoint or not _fits(state[name], checkpoint[name]))
        found = f"has shape {tuple(checkpoint[missing].shape)} there" if missing in checkpoint else "is missing there"
        raise ModelError(
            f"{path.name}: does not fit the network: {missing} {tuple(state[missing].shape)} {found}; a .safetensors "
            "file does not keep the order of the layers, so its names have to be those of the network: take a .pth or "
            ".bin file of the same weights, or save them with the names of this network"
        )
    for number, (ours, theirs) in enumerate(zip(backbone, [*checkpoint, *backbone], strict=False)):
        if number >= len(checkpoint) or _kind(ours) != _kind(theirs) or not _fits(state[ours], checkpoint[theirs]):
            there = f"{theirs} {tuple(checkpoint[theirs].shape)}" if number < len(checkpoint) else "the end of the file"
            raise ModelError(
                f"{path.name}: these are the weights of another network: tensor {number + 1} of this one is {ours} "
                f"{tuple(state[ours].shape)}, and {there} in the file; check the builder and its kwargs"
            )
    return dict(zip(backbone, checkpoint, strict=False))


def _match_rest(
    state: Mapping[str, Tensor], checkpoint: Mapping[str, Tensor], matches: Mapping[str, str]
) -> dict[str, str]:
    """Return matches of the tensors after the backbone if all of them fit what is left in the checkpoint, in order."""
    used = set(matches.values())
    ours, theirs = [name for name in state if name not in matches], [name for name in checkpoint if name not in used]
    pairs = list(zip(ours, theirs, strict=False))
    if len(ours) != len(theirs) or not all(
        _kind(one) == _kind(other) and _fits(state[one], checkpoint[other]) for one, other in pairs
    ):
        return {}
    return dict(pairs)


def _fits(ours: Tensor, theirs: Tensor) -> bool:
    return ours.shape == theirs.shape and ours.is_floating_point() == theirs.is_floating_point()


def _kind(name: str) -> str:
    """Return the last part of a tensor's name, such as `weight` or `running_mean`."""
    return name.rpartition(".")[2]


def _is_renamed(ours: str, theirs: str) -> bool:
    return ours.removeprefix(f"{BACKBONE}.") != theirs


def _shortened(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return ", ".join(names[:SHOWN_NAMES]) + more
