"""Build networks by name, save them, and load them again, pruned or not, without pickles.

A saved network is a folder with `model.json` (a `ModelSpec`) and `weights.safetensors`. To load a pruned network, the
network of its builder is resized to the shapes of the stored tensors, so nothing else has to be recorded. For a network
that came as a file, that file is stored instead of the weights.
"""

from __future__ import annotations

import importlib
import inspect
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as serialise_tensors
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from edgekit.core.config import suggest
from edgekit.core.errors import ModelError, with_article
from edgekit.core.hashing import write_json
from edgekit.models import memory_layout, output_check, several_inputs
from edgekit.models.files import as_module, detect, exported, interface, task_outputs
from edgekit.models.files.op_count import OpCount
from edgekit.models.pretrained import load_backbone
from edgekit.models.reparameterize import merge_branches
from edgekit.models.spec import FORMAT, SPEC
from edgekit.models.spec import ModelSpec as ModelSpec
from edgekit.models.spec import Source as Source
from edgekit.models.spec import read_spec as read_spec
from edgekit.models.user_errors import FAULTS, describe, failure_of
from edgekit.runner import input_path
from edgekit.runner.errors import bounded_recursion
from edgekit.runner.files import write_atomically

WEIGHTS = "weights.safetensors"
DIMENSIONS = "dimensions"
"""The argument of a builder, and the key in a config's `kwargs`, for the number of dimensions of an embedding."""
SHAPE, SHAPES = "input_shape", "input_shapes"
"""The arguments of a builder for the shape of its input, or of its several inputs by name."""


def build(spec: ModelSpec, seed: int = 0) -> nn.Module:
    """Build a new network in eval mode, with initial weights from `seed` and from `spec.pretrained`, if it is given.

    The global random generator does not change.

    Of the following arguments, the builder gets those that its signature has:

    - `input_shape` and `num_classes`; for an embedding, `num_classes` and `dimensions` are both the number of
      dimensions
    - for several inputs, `input_shapes` by name instead of `input_shape`, and `id_counts`, which maps the name of each
      tensor of non-negative integers to its largest value plus one
    - for texts, `vocabulary_size` and `pad_id`

    Raises
    ------
    ModelError
        The builder cannot be imported, fails, or returns a network that does not fit `spec` or its trained weights.
    """
    module = _construct(spec, seed)
    if spec.pretrained:
        load_backbone(module, spec.pretrained)
    check_forward(module, spec)
    memory_layout.detect(module, random_sample(spec))
    return module


def save(folder: Path, module: nn.Module, spec: ModelSpec) -> None:
    """Write `model.json` and `weights.safetensors`; equal networks give equal bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    state = module.state_dict()
    foreign = sorted(name for name, value in state.items() if not isinstance(value, Tensor))
    if foreign:
        raise ModelError(f"{spec.called}: state that is not a tensor cannot be saved: {', '.join(foreign)}")
    # cloned: safetensors refuses tensors that share memory, as tied weights do
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in state.items()}
    write_atomically(folder / WEIGHTS, serialise_tensors(tensors))
    write_json(folder / SPEC, {"format": FORMAT, **spec.model_dump(mode="json", exclude={"pretrained"})})


def save_source(folder: Path, path: Path, spec: ModelSpec) -> None:
    """Write `model.json`, and copy the model file at `path` with the file of its weights, if it has one."""
    assert spec.source is not None
    folder.mkdir(parents=True, exist_ok=True)
    for member in detect.members(path, spec.source.kind):
        shutil.copyfile(member, folder / member.name)
    write_json(folder / SPEC, {"format": FORMAT, **spec.model_dump(mode="json")})


def members(folder: Path) -> list[str]:
    """Return the names of the files of the network saved in `folder`, its weights last."""
    spec = read_spec(folder)
    if spec.source is None:
        return [SPEC, WEIGHTS]
    return [SPEC, *(path.name for path in detect.members(folder / spec.source.file, spec.source.kind))]


def weight_bytes(folder: Path) -> int:
    """Return the size in bytes of the files that hold the weights of the network saved in `folder`."""
    return sum((folder / name).stat().st_size for name in members(folder)[1:])


def load(folder: Path) -> tuple[nn.Module, ModelSpec]:
    """Load the network saved in `folder`, in eval mode on the CPU, and its spec.

    Raises
    ------
    ModelError
        A file is missing or damaged, or does not fit the builder's network.
    """
    spec = read_spec(folder)
    if spec.source:
        module = _open_source(folder / spec.source.file, spec)
        check_forward(module, spec)
        if spec.is_torch:
            memory_layout.detect(module, random_sample(spec))
        return module, spec
    tensors = _read_tensors(folder / WEIGHTS)
    module = _construct(spec, seed=0)
    _check_names(module, tensors, folder / WEIGHTS)
    resize(module, {name: tuple(value.shape) for name, value in tensors.items()})
    module.load_state_dict(tensors, strict=False)
    check_forward(module, spec)
    memory_layout.detect(module, random_sample(spec))
    return module, spec


def load_weights(module: nn.Module, path: Path) -> None:
    """Load a user's safetensors file into `module`; ModelError lists every name or shape that does not fit."""
    tensors = _read_tensors(path)
    if isinstance(module, several_inputs.SeveralInputs):  # the file has the names of the network inside the wrapper
        tensors = {f"{several_inputs.PREFIX}{name}": value for name, value in tensors.items()}
    _check_names(module, tensors, path)
    shapes = {name: tuple(value.shape) for name, value in module.state_dict().items()}
    misshapen = [
        f"{name} {tuple(value.shape)}, the network has {shapes[name]}"
        for name, value in sorted(tensors.items())
        if tuple(value.shape) != shapes[name]
    ]
    if misshapen:
        raise ModelError(f"{path}: shapes differ: {_shortened_list(misshapen)}; check the builder's kwargs")
    infinite = [name for name, value in sorted(tensors.items()) if not bool(torch.isfinite(value).all())]
    if infinite:
        raise ModelError(f"{path}: NaN or infinite values in {_shortened_list(infinite)}; export the weights again")
    module.load_state_dict(tensors, strict=False)


def distance_map_shape(spec: ModelSpec) -> tuple[int, ...] | None:
    """Return (1, rows, columns) if the builder's network returns a map of distances, or None for any other output."""
    module = _construct(spec, seed=0)
    try:
        with torch.no_grad():
            out = module(zero_sample(spec))
    except FAULTS:  # `check_forward` reports the failure
        return None
    shape = tuple(out.shape[1:]) if isinstance(out, Tensor) else ()
    return shape if len(shape) == 3 and shape[0] == 1 and shape != spec.input_shape else None


def zero_sample(spec: ModelSpec) -> Tensor:
    """Return one sample of zeros as the network takes it: (1, *input_shape), float32 or token ids (int32)."""
    return torch.zeros(1, *spec.input_shape, dtype=torch.int32 if spec.takes_ids else torch.float32)


def random_sample(spec: ModelSpec) -> Tensor:
    """Return one sample of normally distributed values, (1, *input_shape); token ids are zeros."""
    if spec.takes_ids:
        return zero_sample(spec)
    return torch.randn(1, *spec.input_shape, generator=torch.Generator().manual_seed(0))


@bounded_recursion()
def check_forward(module: nn.Module, spec: ModelSpec) -> None:
    """Run the network on one sample of zeros in eval mode; raise ModelError unless its output fits the spec."""
    try:
        module.eval()
        device = next((parameter.device for parameter in module.parameters()), torch.device("cpu"))
        with torch.no_grad():  # not inference_mode, because tensors that the network stores here may be trained later
            out = module(zero_sample(spec).to(device))
    except FAULTS as error:
        raise failure_of(f"{spec.called}: fails on {_inputs(spec)}", error, module) from error
    output_check.check_output(out, spec)


def _inputs(spec: ModelSpec) -> str:
    """Describe the shapes of the inputs, for a message."""
    if not spec.tensors:
        return f"an input of shape {(1, *spec.input_shape)}"
    return "inputs of shapes " + ", ".join(f"{each['name']} {(1, *each['shape'])}" for each in spec.tensors)


def _open_source(path: Path, spec: ModelSpec) -> nn.Module:
    assert spec.source is not None
    needed = task_outputs.for_task(spec.task, spec.num_classes, interface.channels_last(spec.input_shape), spec.head)
    if spec.source.kind == "exported":
        return exported.network(path, spec.tensors, needed)
    source = spec.source
    counted = OpCount(source.parameters, source.macs, source.weight_bytes)
    try:
        return as_module.network(path, source.kind, spec.input_shape, needed, counted, spec.tensors)
    except ModelError:
        raise
    except Exception as error:  # the errors of the formats' libraries have no common base class
        reason = " ".join(str(error).split())[:300]
        raise ModelError(f"{path}: cannot be opened: {type(error).__name__}: {reason}") from error


@bounded_recursion()
def _construct(spec: ModelSpec, seed: int) -> nn.Module:
    assert spec.builder is not None
    builder = _find_builder(spec.builder)
    kwargs = _arguments(builder, spec)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = builder(**kwargs)
            if isinstance(module, nn.Module) and _is_lazy(module):
                with torch.no_grad():  # lazy layers get their shapes and weights in their first forward pass
                    several_inputs.wrap_inputs(module.eval(), spec)(zero_sample(spec))
    except FAULTS as error:
        raise failure_of(f"{spec.builder}({_format_kwargs(kwargs)})", error) from error
    if not isinstance(module, nn.Module):
        returned = f"the class {module.__name__}" if isinstance(module, type) else with_article(type(module).__name__)
        advice = "call it: return Net()" if isinstance(module, type) else "let it end with `return net`"
        raise ModelError(f"{spec.builder}: must return a torch.nn.Module, returned {returned}; {advice}")
    try:
        module.eval()
    except FAULTS as error:
        raise failure_of(f"{spec.builder}: cannot be put in eval mode", error, module) from error
    if spec.reparameterized:
        module = merge_branches(module)
    return several_inputs.wrap_inputs(module, spec)


def _is_lazy(module: nn.Module) -> bool:
    return any(map(is_lazy, (*module.parameters(), *module.buffers())))


@bounded_recursion()
def _find_builder(name: str) -> Callable[..., Any]:
    module_name, _, function = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except FAULTS as error:
        missing = error.name or "" if isinstance(error, ModuleNotFoundError) else ""
        if missing and (module_name == missing or module_name.startswith(f"{missing}.")):
            raise ModelError(
                f"builder {name!r}: cannot import {module_name}, there is no module {missing!r} beside the config, in "
                "this folder or installed; put its file there, or its folder on PYTHONPATH"
            ) from None
        raise ModelError(f"builder {name!r}: cannot import {module_name}: {describe(error)}") from error
    builder = getattr(module, function, None)
    if builder is None:
        public = [member for member, value in vars(module).items() if callable(value) and not member.startswith("_")]
        advice = suggest(function, public) if public else "it has no function at all"
        raise ModelError(f"builder {name!r}: no {function!r} in {module_name}; name one of its functions: {advice}")
    if not callable(builder):
        raise ModelError(
            f"builder {name!r}: {function!r} is {with_article(type(builder).__name__)}, not a function; name a "
            "function that returns the network"
        )
    return builder


def _arguments(builder: Callable[..., Any], spec: ModelSpec) -> dict[str, Any]:
    try:
        parameters = inspect.signature(builder).parameters
    except (ValueError, TypeError):
        raise ModelError(
            f"{spec.builder}: has no signature to read its arguments from; name a function of your own that returns "
            "the network"
        ) from None
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    derived = {**_shapes(spec), "num_classes": spec.num_classes, **_vocabulary(spec)}
    own = dict(spec.kwargs)
    if spec.task == "embedding":
        derived |= {"num_classes": spec.outputs[0], DIMENSIONS: spec.outputs[0]}
        own.pop(DIMENSIONS, None)
    kwargs = {name: value for name, value in derived.items() if takes_any or name in parameters} | own
    unknown = [] if takes_any else [name for name in own if name not in parameters]
    if unknown:
        options = [name for name in parameters if name not in derived]
        raise ModelError(
            f"{spec.builder}: takes no {unknown[0]!r}; look at its arguments: {suggest(unknown[0], options)}"
        )
    missing = [
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        and name not in kwargs
    ]
    if wrong := next((name for name in missing if name in (SHAPE, SHAPES)), ""):
        content, right = ("several tensors", SHAPES) if spec.tensors else ("one array each", SHAPE)
        raise ModelError(f"{spec.builder}: needs {wrong}, but the samples are {content}; let it take {right}")
    if missing:
        raise ModelError(f"{spec.builder}: needs {', '.join(missing)}; give it under model.kwargs")
    return kwargs


def _shapes(spec: ModelSpec) -> dict[str, Any]:
    """Return the builder's arguments for the shape of the input, or for the shapes and id counts of several inputs."""
    if not spec.tensors:
        return {SHAPE: spec.input_shape}
    ids = [each for each in spec.tensors if each["dtype"] == several_inputs.INTEGER_DTYPE and each["range"][0] >= 0]
    return {
        SHAPES: {each["name"]: tuple(each["shape"]) for each in spec.tensors},
        "id_counts": {each["name"]: each["range"][1] + 1 for each in ids},
    }


def _vocabulary(spec: ModelSpec) -> dict[str, Any]:
    """Return the builder's arguments for texts: the number of ids and the id of padding."""
    step = input_path.find_step(spec.raw.get("input_path") or (), "tokenize")
    return {"vocabulary_size": int(spec.raw["range"][1]) + 1, "pad_id": step["pad_id"]} if step else {}


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return parse_tensors(path.read_bytes())
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror}); weights are a .safetensors file") from None
    except (SafetensorError, ValueError, KeyError) as error:
        raise ModelError(f"{path}: not a safetensors file ({error}); save with safetensors.torch.save_file") from None


def _check_names(module: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    expected = set(module.state_dict())
    # num_batches_tracked is a counter that inference never reads and that many exporters leave out
    missing = sorted(name for name in expected - set(tensors) if not name.endswith("num_batches_tracked"))
    unexpected = sorted(set(tensors) - expected)
    faults = [f"missing {_shortened_list(missing)}"] if missing else []
    faults += [f"unexpected {_shortened_list(unexpected)}"] if unexpected else []
    if faults:
        raise ModelError(f"{path}: does not fit the network: {'; '.join(faults)}")


def _shortened_list(names: list[str], limit: int = 6) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def _format_kwargs(kwargs: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in kwargs.items())


Shape = tuple[int, ...]


def resize(module: nn.Module, shapes: dict[str, Shape]) -> None:
    """Replace every parameter and buffer whose shape differs from `shapes`, and update the sizes that layers record.

    The values of replaced tensors are undefined until a state is loaded.
    """
    for prefix, layer in module.named_modules():
        before = {name: tuple(tensor.shape) for name, tensor in _own_tensors(layer).items()}
        after = {name: shapes.get(f"{prefix}.{name}" if prefix else name, before[name]) for name in before}
        if after == before:
            continue
        for name, shape in after.items():
            if shape != before[name]:
                _replace(layer, name, shape)
        _describe(layer, after)


def _own_tensors(layer: nn.Module) -> dict[str, torch.Tensor]:
    tensors = dict(layer.named_parameters(recurse=False))
    return tensors | dict(layer.named_buffers(recurse=False))


def _replace(layer: nn.Module, name: str, shape: Shape) -> None:
    old = getattr(layer, name)
    new = torch.empty(shape, dtype=old.dtype, device=old.device)
    setattr(layer, name, nn.Parameter(new, requires_grad=old.requires_grad) if isinstance(old, nn.Parameter) else new)


def _describe(layer: nn.Module, shapes: dict[str, Shape]) -> None:
    """Update the sizes that a layer records; some are read at run time, the others are shown to the user."""
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
    if layer.groups > 1 and layer.groups == layer.in_channels:  # depthwise: there are as many groups as channels
        layer.groups = weight[0] // (layer.out_channels // layer.in_channels)
    layer.in_channels, layer.out_channels = weight[1] * layer.groups, weight[0]
