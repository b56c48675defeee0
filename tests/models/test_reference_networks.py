"""One contract for every public builder in edgekit/models: a new file there is tested without a word here."""

import importlib
import inspect
import pkgutil
import re

import numpy as np
import pytest
import torch

import edgekit.models
from edgekit.core.errors import ModelError
from edgekit.models.cost import OUTSIDE, cost, layer_costs
from edgekit.models.eager import join_outputs
from edgekit.models.store import ModelSpec, build, load, save
from edgekit.stages.prune.structured import output_layers

COUNT = re.compile(r"([\d,]+)\s+parameters\s+on\s+1\s+channel\s+and\s+([\d,]+)\s+on\s+3")


def _builders() -> list[str]:
    """Every public function in the folder that takes `input_shape` and `num_classes`, as its __init__ promises.

    One that needs to be given more, such as the size of a vocabulary, has a test file of its own.
    """
    found = []
    for module in pkgutil.iter_modules(edgekit.models.__path__, "edgekit.models."):
        for name, value in vars(importlib.import_module(module.name)).items():
            own = inspect.isfunction(value) and value.__module__ == module.name and not name.startswith("_")
            parameters = inspect.signature(value).parameters if own else {}
            needed = {name for name, each in parameters.items() if each.default is inspect.Parameter.empty}
            if {"input_shape", "num_classes"} <= set(parameters) and needed <= {"input_shape", "num_classes"}:
                found.append(f"{module.name}:{name}")
    return sorted(found)


BUILDERS = _builders()
LARGER = [
    "edgekit.models.efficientnet_lite:efficientnet_lite1",
    "edgekit.models.efficientnet_lite:efficientnet_lite2",
    "edgekit.models.mobilenet_v3:mobilenet_v3_large",
]
"""Made of the blocks of a smaller builder of the same file, which stands for them outside `make long`."""
SHAPES = {"image": ((1, 32, 32), (3, 32, 32)), "window": ((64, 1), (64, 3))}


def docstring_of(builder: str) -> str:
    module, _, name = builder.partition(":")
    return inspect.getdoc(getattr(importlib.import_module(module), name)) or ""


def kind_of(builder: str) -> str:
    """What a builder takes, by its own word: windows where it says "(N, time, channels)", images else."""
    return "window" if "(N, time, channels)" in docstring_of(builder) else "image"


def finds_boxes(builder: str) -> bool:
    """Whether a builder makes detectors, by its own word."""
    return "-> boxes" in docstring_of(builder)


def draws_masks(builder: str) -> bool:
    """Whether a builder makes networks for segmentation, by its own word."""
    return "-> masks" in docstring_of(builder)


def task_of(builder: str) -> str:
    return "segmentation" if draws_masks(builder) else "detection" if finds_boxes(builder) else "classification"


def shape_of(builder: str, classes: int) -> tuple[int, ...]:
    """Of what it gives for four samples: of a detector 16 and 4 points of 32×32 pixels, of masks cells of 2×2."""
    if draws_masks(builder):
        return (4, classes, 16, 16)
    return (4, 20, 4 + classes) if finds_boxes(builder) else (4, classes)


def spec_of(builder: str, channels: int = 1, classes: int = 10, **kwargs: object) -> ModelSpec:
    kind = kind_of(builder)
    shape = dict(zip((1, 3), SHAPES[kind], strict=True))[channels]
    raw = {"kind": kind, "shape": [32, 32, channels], "dtype": "uint8"}
    if kind == "window":
        raw |= {"shape": list(shape), "dtype": "float32"}
    return ModelSpec(
        builder=builder,
        kwargs=kwargs,
        input_shape=shape,
        num_classes=classes,
        classes=tuple(f"class {index}" for index in range(classes)),
        task=task_of(builder),
        preprocess=[{"step": "scale", "factor": 1 / 255}],
        raw=raw,
    )


def narrow(builder: str, channels: int = 1) -> ModelSpec:
    """The spec of a network with few weights where the default has millions."""
    return spec_of(builder, channels, **({"width": 16} if builder.endswith(":resnet18") else {}))


def samples(spec: ModelSpec, count: int = 4, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, *spec.input_shape, generator=torch.Generator().manual_seed(seed))


def warmed(spec: ModelSpec) -> torch.nn.Module:
    """A network whose running statistics are no longer those of a fresh one."""
    module = build(spec).train()
    with torch.no_grad():
        module(samples(spec, 16, seed=1))
    return module.eval()


def outputs(module: torch.nn.Module, spec: ModelSpec) -> np.ndarray:
    with torch.inference_mode():
        return join_outputs(module(samples(spec))).numpy()


def pruned(module: torch.nn.Module, spec: ModelSpec, ratio: float = 0.4) -> torch.nn.Module:
    import torch_pruning

    heads = output_layers(module, samples(spec, 1))
    torch_pruning.pruner.MagnitudePruner(
        module,
        samples(spec, 1),
        importance=torch_pruning.importance.MagnitudeImportance(p=2),
        pruning_ratio=ratio,
        ignored_layers=heads,
    ).step()
    return module.eval()


def test_the_folder_holds_the_promised_builders():
    names = {builder.split(":")[1] for builder in BUILDERS}
    assert {"resnet", "resnet8", "ds_cnn", "mobilenet_v1", "mobilenet_v2", "conv1d"} <= names
    assert {"mobilenet_v3_small", "mobilenet_v4_small", "efficientnet_lite0", "mcunet", "repvgg"} <= names
    assert {"mobilenet_v3_large", "efficientnet_lite1", "efficientnet_lite2", "resnet18"} <= names
    assert {"tc_resnet", "bc_resnet"} <= names


@pytest.mark.parametrize("builder", BUILDERS)
class TestSizes:
    @pytest.mark.parametrize(("channels", "classes"), [(1, 10), (3, 4)])
    def test_gives_one_row_of_logits_per_sample(self, builder, channels, classes):
        spec = spec_of(builder, channels, classes)
        module = build(spec)
        assert outputs(module, spec).shape == shape_of(builder, classes)
        assert not module.training

    def test_documents_its_parameter_counts(self, builder):
        found = COUNT.search(docstring_of(builder))
        assert found, f"{builder}: says no 'N parameters on 1 channel and M on 3'"
        for channels, written in zip((1, 3), found.groups(), strict=True):
            network = build(spec_of(builder, channels))
            assert sum(parameter.numel() for parameter in network.parameters()) == int(written.replace(",", ""))


@pytest.mark.parametrize(
    "builder", [pytest.param(each, marks=[pytest.mark.long] if each in LARGER else []) for each in BUILDERS]
)
class TestContract:
    def test_starts_from_its_seed_alone(self, builder):
        spec = narrow(builder)
        torch.manual_seed(1)
        first = build(spec, seed=3)
        torch.manual_seed(2)
        assert np.array_equal(outputs(first, spec), outputs(build(spec, seed=3), spec))
        assert not np.array_equal(outputs(first, spec), outputs(build(spec, seed=4), spec))

    def test_saved_and_loaded_is_bit_equal(self, builder, tmp_path):
        spec = narrow(builder)
        module = warmed(spec)
        save(tmp_path / "a", module, spec)
        loaded, read = load(tmp_path / "a")
        assert read == spec
        assert not loaded.training
        assert np.array_equal(outputs(module, spec), outputs(loaded, spec))
        save(tmp_path / "b", loaded, read)
        for name in ("model.json", "weights.safetensors"):
            assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()

    def test_pruned_saved_and_rebuilt_is_bit_equal(self, builder, tmp_path):
        spec = narrow(builder)
        module = pruned(warmed(spec), spec)
        before = sum(parameter.numel() for parameter in build(spec).parameters())
        after = sum(parameter.numel() for parameter in module.parameters())
        assert after < 0.75 * before
        save(tmp_path, module, spec)
        loaded, _ = load(tmp_path)
        assert np.array_equal(outputs(module, spec), outputs(loaded, spec))
        assert str(loaded) == str(module)

    def test_a_rebuilt_network_can_be_pruned_again(self, builder, tmp_path):
        spec = narrow(builder)
        save(tmp_path, pruned(warmed(spec), spec, ratio=0.25), spec)
        module = pruned(load(tmp_path)[0], spec, ratio=0.25)
        save(tmp_path, module, spec)
        assert np.array_equal(outputs(module, spec), outputs(load(tmp_path)[0], spec))

    def test_exports(self, builder):
        spec = narrow(builder)
        module, one = warmed(spec), samples(spec, 1)
        with torch.no_grad():
            exported = torch.export.export(module, (one,)).module()
            assert torch.allclose(join_outputs(exported(one)), join_outputs(module(one)), atol=1e-4)

    def test_takes_the_samples_that_it_says_and_refuses_others(self, builder):
        for kind, shape in (("vector", (64,)), *((kind, shapes[0]) for kind, shapes in SHAPES.items())):
            spec = narrow(builder).model_copy(update={"input_shape": shape})
            if kind == kind_of(builder) or "any shape" in docstring_of(builder):
                assert outputs(build(spec), spec).shape == shape_of(builder, 10)
            else:
                with pytest.raises(ModelError, match="needs an image|needs windows"):
                    build(spec)

    def test_its_multiply_adds_are_those_of_its_layers(self, builder):
        """Written out by hand: outputs x weights of one output, of every convolution and dense layer."""
        spec = narrow(builder, channels=3)
        module, by_hand = build(spec), 0

        def count(layer, _, output):
            nonlocal by_hand
            by_hand += output.numel() * layer.weight[0].numel()

        for layer in module.modules():
            if isinstance(layer, torch.nn.Conv1d | torch.nn.Conv2d | torch.nn.Linear):
                layer.register_forward_hook(count)
        module(samples(spec, 1))
        counted, found = by_hand, cost(module, spec.input_shape)
        assert found.macs == counted
        rows = layer_costs(module, spec.input_shape)
        assert sum(row.macs for row in rows if row.layer != OUTSIDE) == counted


@pytest.mark.parametrize(
    ("builder", "kwargs", "message"),
    [
        ("edgekit.models.resnet:resnet", {"depth": 19}, "6n.2"),
        ("edgekit.models.resnet:resnet", {"depth": 20, "strides": [2, 2]}, "4n.2"),
        ("edgekit.models.resnet:resnet", {"strides": []}, "at least one group"),
        ("edgekit.models.ds_cnn:ds_cnn", {"blocks": 2, "block_strides": [1]}, "2 blocks"),
        ("edgekit.models.mobilenet_v1:mobilenet_v1", {"alpha": 0.0}, "above 0"),
        ("edgekit.models.mobilenet_v2:mobilenet_v2", {"alpha": -1.0}, "above 0"),
        ("edgekit.models.mobilenet_v3:mobilenet_v3_small", {"alpha": 0}, "needs alpha above 0, got 0"),
        ("edgekit.models.mobilenet_v4:mobilenet_v4_small", {"reduction": 12}, "power of 2 from 1 to 32, got 12"),
        ("edgekit.models.efficientnet_lite:efficientnet_lite0", {"last": 0}, "needs last above 0, got 0"),
        ("edgekit.models.efficientnet_lite:efficientnet_lite1", {"padding": "same"}, "known: symmetric, tensorflow"),
        ("edgekit.models.mcunet:mcunet", {"reduction": 64}, "power of 2 from 1 to 32, got 64"),
        ("edgekit.models.repvgg:repvgg", {"blocks": [1, 2]}, r"blocks for 4 stages, .* got \[1, 2\]"),
        ("edgekit.models.tc_resnet:tc_resnet", {"kernel": 8}, "odd kernel >= 3, got blocks 1, kernel 8"),
        ("edgekit.models.bc_resnet:bc_resnet", {"alpha": -1}, "needs alpha above 0, got -1"),
        ("edgekit.models.conv1d:conv1d", {"kernel": 4}, "odd kernel >= 3, got width 16, blocks 3, kernel 4"),
        ("edgekit.models.conv1d:conv1d", {"blocks": 0}, "blocks 0"),
        ("edgekit.models.segmenter:segmenter", {"block": "sep"}, "got block 'sep'; known: separable, residual"),
        ("edgekit.models.segmenter:segmenter", {"depth": -3}, "segmenter needs .* got width 16, depth -3"),
        ("edgekit.models.detector:detector", {"block": "sep"}, "got block 'sep'"),
        ("edgekit.models.detector:detector", {"width": 0}, "detector needs a width >= 1 .* got width 0, depth 2"),
    ],
)
def test_impossible_options_are_explained(builder, kwargs, message):
    with pytest.raises(ModelError, match=message):
        build(spec_of(builder, **kwargs))


def test_width_and_strides_do_what_they_say():
    small = build(spec_of("edgekit.models.ds_cnn:ds_cnn", width=8, blocks=2, block_strides=[2, 1]))
    assert sum(parameter.numel() for parameter in small.parameters()) < 600
    deep = build(spec_of("edgekit.models.resnet:resnet", depth=32))
    assert sum(isinstance(layer, torch.nn.Conv2d) for layer in deep.modules()) == 31 + 2


def test_a_resnets_groups_have_the_strides_that_are_asked_for():
    shapes = []
    spec = spec_of("edgekit.models.resnet:resnet", depth=10, width=8, strides=[2, 2])
    network = build(spec)
    for block in network.blocks:
        block.register_forward_hook(lambda _, __, result: shapes.append(tuple(result.shape[1:])))
    outputs(network, spec)
    assert shapes == [(8, 16, 16), (8, 16, 16), (16, 8, 8), (16, 8, 8)]


def test_windows_are_halved_in_every_block_and_taken_in_the_samples_order():
    spec = spec_of("edgekit.models.conv1d:conv1d", channels=3, width=4, blocks=4)
    network, shapes = build(spec), []
    for block in network.blocks:
        block.register_forward_hook(lambda _, __, result: shapes.append(tuple(result.shape[1:])))
    whole = outputs(network, spec)
    assert shapes == [(4, 32), (8, 16), (16, 8), (32, 4)]
    with torch.inference_mode():
        other = network(samples(spec)[:, :, [1, 0, 2]]).numpy()
    assert not np.allclose(whole, other)
