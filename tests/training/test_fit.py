"""The training loop on small synthetic problems: it learns, it repeats itself bit for bit, it explains its failures."""

import numpy as np
import pytest
import torch
from torch import nn

from edgekit.core.config import TrainingOptions, TrainOptions
from edgekit.core.errors import ConfigError, ModelError
from edgekit.data import Data, Split
from edgekit.models.conv1d import conv1d
from edgekit.training.fit import fit
from edgekit.training.losses import hints, soft_targets
from edgekit.training.objective import Distillation
from edgekit.training.predict import evaluate, logits, pick_device
from tests import requirements

SCALE = [{"step": "scale", "factor": 1 / 255}]


def blobs(count: int, seed: int) -> Split:
    """Vectors of four features around one of three corners."""
    random = np.random.default_rng(seed)
    y = np.arange(count) % 3
    return Split((np.eye(4)[y] * 2 + 0.3 * random.standard_normal((count, 4))).astype(np.float32), y.astype(np.int64))


def bars(count: int, seed: int) -> Split:
    """8x8 images with a horizontal or a vertical bar at a random place."""
    random = np.random.default_rng(seed)
    y = np.arange(count, dtype=np.int64) % 2
    x = random.integers(0, 60, (count, 8, 8, 1), dtype=np.uint8)
    for image, label, place in zip(x, y, random.integers(1, 7, count), strict=True):
        image[(place, slice(None)) if label else (slice(None), place)] = 255
    return Split(x, y)


def waves(count: int, seed: int) -> Split:
    """Windows (24, 2) of a slow or a fast wave, each with its own phases."""
    random = np.random.default_rng(seed)
    y = np.arange(count, dtype=np.int64) % 2
    phase = 2 * np.pi * random.random((count, 1, 2))
    x = np.sin(np.arange(24)[:, None] * np.where(y, 0.9, 0.4)[:, None, None] + phase)
    return Split((x + 0.1 * random.standard_normal(x.shape)).astype(np.float32), y)


def data_of(make, kind: str, classes: int, train: int = 97) -> Data:
    parts = [make(count, seed) for seed, count in enumerate((train, 10, 40, 10))]
    return Data(*parts[:3], tuple(map(str, range(classes))), kind, "0" * 64, (), parts[3])


@pytest.fixture
def vectors() -> Data:
    return data_of(blobs, "vector", 3)


@pytest.fixture
def images() -> Data:
    return data_of(bars, "image", 2)


@pytest.fixture
def windows() -> Data:
    return data_of(waves, "window", 2)


def over_time(seed: int = 0, width: int = 4) -> nn.Module:
    torch.manual_seed(seed)
    return conv1d((24, 2), 2, width=width, blocks=2)


def perceptron(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 3))


def convolutions(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 2),
    )


def options(epochs: int = 6, **changes: object) -> TrainOptions:
    return TrainOptions(**{"epochs": epochs, "batch_size": 16, "learning_rate": 0.1, "augment": "none"} | changes)


def train(module: nn.Module, data: Data, preprocess=(), seed: int = 0, threads: int = 1, **rest):
    chosen = rest.pop("options", options())
    return fit(module, data, list(preprocess), chosen, seed=seed, device="cpu", threads=threads, **rest)


def same(first: nn.Module, second: nn.Module) -> bool:
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    return all(torch.equal(one, other) for one, other in pairs)


def test_learns_vectors(vectors):
    module = perceptron()
    history = train(module, vectors)
    assert history.best.validation_accuracy > 0.95
    assert evaluate(module, vectors.validation, []) == pytest.approx(history.best.validation_accuracy)
    assert history.epochs[-1].train_loss < history.epochs[0].train_loss


@pytest.mark.parametrize("augment", ["none", "shift", "shift_flip"])
def test_learns_images(images, augment):
    module = convolutions()
    history = train(module, images, SCALE, options=options(15, augment=augment))
    assert history.best.validation_accuracy > 0.9


@pytest.mark.parametrize("augment", ["none", "shift"])
def test_learns_windows(windows, augment):
    module, again = over_time(), over_time()
    history = train(module, windows, options=options(10, augment=augment))
    assert history.best.validation_accuracy > 0.9
    assert train(again, windows, options=options(10, augment=augment)) == history and same(module, again)


def test_windows_are_not_mirrored(windows):
    with pytest.raises(ConfigError, match="time would run backwards"):
        train(over_time(), windows, options=options(1, augment="shift_flip"))


def test_a_wider_network_of_windows_teaches_by_its_feature_maps(windows):
    teacher, student = over_time(1, width=8), over_time()
    train(teacher, windows)
    history = train(student, windows, distillation=Distillation(teacher, hints.Options()))
    assert history.best.validation_accuracy > 0.9


@pytest.mark.parametrize("augment", ["none", "shift_flip"])
def test_same_seed_same_bits(images, augment):
    first, again, other = convolutions(), convolutions(), convolutions()
    chosen = options(3, augment=augment)
    histories = [
        train(module, images, SCALE, options=chosen, seed=seed) for module, seed in ((first, 1), (again, 1), (other, 2))
    ]
    assert same(first, again)
    assert histories[0] == histories[1]
    assert not same(first, other)


def test_dropout_is_seeded_and_the_global_generator_left_alone(vectors):
    first, again = perceptron(), perceptron()
    torch.manual_seed(1)
    train(first, vectors)
    torch.manual_seed(2)
    expected = torch.rand(2)
    torch.manual_seed(2)
    train(again, vectors)
    assert same(first, again)
    assert torch.equal(torch.rand(2), expected)


def test_leaves_the_settings_of_the_process_and_the_module_as_they_should_be(images):
    before = torch.get_num_threads()
    module = convolutions().train()
    train(module, images, SCALE, options=options(1), threads=before + 1)
    assert torch.get_num_threads() == before
    assert not torch.are_deterministic_algorithms_enabled()
    assert not module.training
    assert module[0].weight.is_contiguous()


@pytest.mark.parametrize("patience", [0, 8])
def test_the_best_epochs_weights_are_kept(vectors, patience):
    """At a rate far too high the epochs differ; only settled ones compete unless early stopping was asked for."""
    module, seen = perceptron(), []
    chosen = options(8, learning_rate=3.0, patience_epochs=patience)
    history = train(module, vectors, options=chosen, on_epoch=seen.append)
    assert seen == list(history.epochs)
    rates = [*(result.learning_rate for result in seen), 0.0]
    settled = [
        result for result, ends_at in zip(seen, rates[1:], strict=True) if max(result.learning_rate, ends_at) <= 0.6
    ]
    competing = seen if patience else settled
    assert 0 < len(competing) < 8 or patience
    assert history.best == max(competing, key=lambda each: (each.validation_accuracy, -each.validation_loss))
    scores = torch.from_numpy(logits(module, vectors.validation.x, []))
    loss = nn.functional.cross_entropy(scores, torch.from_numpy(vectors.validation.y))
    assert float(loss) == pytest.approx(history.best.validation_loss, rel=1e-5)


def test_stops_early_when_validation_no_longer_improves(vectors):
    history = train(perceptron(), vectors, options=options(200, patience_epochs=3, learning_rate=1e-9))
    assert len(history.epochs) < 200
    assert len(history.epochs) - history.best.epoch == 3


def test_a_teacher_alone_can_teach(vectors):
    """Train labels are wrong on purpose: with alpha 1 only the teacher's soft targets count."""
    teacher = perceptron(1)
    train(teacher, vectors)
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    wrong = Data(
        Split(vectors.train.x, (vectors.train.y + 1) % 3),
        vectors.calibration,
        vectors.validation,
        vectors.classes,
        "vector",
        vectors.digest,
        (),
        None,
    )
    student = perceptron(2)
    distillation = Distillation(teacher.train(), soft_targets.Options(temperature=2.0, alpha=1.0))
    train(student, wrong, distillation=distillation, options=options(10))
    assert evaluate(student, vectors.validation, []) > 0.95
    assert all(torch.equal(value, before[name]) for name, value in teacher.state_dict().items())


def test_after_step_keeps_masked_weights_at_zero(vectors):
    module = perceptron()
    mask = (torch.arange(32).reshape(8, 4) % 2).float()
    calls = []

    def hold(network: nn.Module) -> None:
        calls.append(1)
        with torch.no_grad():
            network[0].weight.mul_(mask)

    hold(module)
    train(module, vectors, after_step=hold, options=options(2))
    assert torch.equal(module[0].weight != 0, mask.bool())
    assert len(calls) == 1 + 2 * 6  # 97 samples in batches of 16: the odd one out is left for the next epoch


def test_a_loss_that_is_not_a_number_is_explained(vectors):
    with pytest.raises(ModelError, match=r"epoch \d+: the loss is (nan|inf).*lower learning_rate \(10\.0\)"):
        train(
            nn.Sequential(nn.Linear(4, 64), nn.Linear(64, 64), nn.Linear(64, 3)),
            vectors,
            options=options(learning_rate=10.0),
        )


def test_too_few_samples_are_explained(vectors):
    few = data_of(blobs, "vector", 3, train=1)
    with pytest.raises(ModelError, match="got 1 and 40"):
        train(perceptron(), few)


def test_logits_do_not_depend_on_the_batch_and_read_maps(images, tmp_path):
    np.save(tmp_path / "x.npy", images.train.x)
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    module = convolutions().eval()
    whole = logits(module, x, SCALE)
    assert whole.dtype == np.float32
    assert whole.shape == (97, 2)
    assert np.allclose(whole, logits(module, x, SCALE, batch=7), atol=1e-6)


@pytest.mark.filterwarnings("error")
def test_read_only_vectors_need_no_preprocess(vectors):
    for split in (vectors.train, vectors.validation):
        split.x.setflags(write=False)
        split.y.setflags(write=False)
    train(perceptron(), vectors, options=options(1))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_gpu_trains_in_both_precisions_and_gives_the_network_back(images: Data, precision: str):
    requirements.condition(torch.cuda.is_available(), "a GPU with CUDA", required_in_ci=False)
    module = convolutions()
    training = TrainingOptions(precision=precision)
    history = fit(module, images, SCALE, options(15), seed=0, device="cuda", threads=1, training=training)
    assert {parameter.device.type for parameter in module.parameters()} == {"cpu"}
    assert {parameter.dtype for parameter in module.parameters()} == {torch.float32}
    assert history.best.validation_accuracy > 0.9


def test_an_absent_device_is_explained():
    assert pick_device("cpu").type == "cpu"
    assert pick_device("auto").type in ("cpu", "cuda", "mps")
    if not torch.cuda.is_available():
        with pytest.raises(ModelError, match="'cuda' is not available"):
            pick_device("cuda")
