"""Faults on the way from a raw sample to an input, and in the splits."""

from __future__ import annotations

from tests.mutants.seeds.seed import Seed

DATA = (
    Seed(
        "resize-axes-swapped",
        "runner/preprocess.py",
        "_resample(_resample(x, width, axis=-2), height, axis=-3)",
        "_resample(_resample(x, width, axis=-3), height, axis=-2)",
        "pictures that are not square come out with their sides exchanged",
        ("tests/runner/test_preprocess.py",),
    ),
    Seed(
        "layout-transposed",
        "runner/preprocess.py",
        "x = x.transpose(0, 3, 1, 2)",
        "x = x.transpose(0, 3, 2, 1)",
        "OpenVINO and ONNX see every picture mirrored along its diagonal",
        ("tests/runner/test_preprocess.py",),
    ),
    Seed(
        "mean-and-std-swapped",
        "runner/preprocess.py",
        """    mean = np.asarray(step["mean"], dtype=np.float32)
    std = np.asarray(step["std"], dtype=np.float32)
""",
        """    mean = np.asarray(step["std"], dtype=np.float32)
    std = np.asarray(step["mean"], dtype=np.float32)
""",
        "inputs are normalised with the wrong figures",
        ("tests/runner/test_preprocess.py",),
    ),
    Seed(
        "scale-divides",
        "runner/preprocess.py",
        "np.multiply(x, factor, dtype=np.float32)",
        "np.divide(x, factor, dtype=np.float32)",
        "inputs are 65025 times too large",
        ("tests/runner/test_preprocess.py",),
    ),
    Seed(
        "picture-sides-swapped",
        "runner/inputs/picture.py",
        "image = image.resize((width, height)",
        "image = image.resize((height, width)",
        "a picture of another size than the bundle's reaches the model scrambled",
        ("tests/runner/test_inputs.py",),
    ),
    Seed(
        "calibration-from-validation",
        "data/splits.py",
        'taken["calibration"] = _calibration(left, strata',
        'taken["calibration"] = _calibration(taken.get("validation", left), strata',
        "int8 ranges are set on the samples that judge them",
        ("tests/data/test_splits.py",),
    ),
    Seed(
        "calibration-from-test",
        "data/splits.py",
        'taken["calibration"] = _calibration(left, strata',
        'taken["calibration"] = _calibration(taken.get("test", left), strata',
        "int8 ranges are set on the test split, so its accuracy is no longer honest",
        ("tests/data/test_splits.py",),
    ),
    Seed(
        "train-test-overlap-unseen",
        "data/overlap.py",
        '(("train", ("validation", "test")), ("validation", ("test",)))',
        '(("train", ("validation",)), ("validation", ("test",)))',
        "copies of test samples are trained on",
        ("tests/data/test_splits.py",),
    ),
    Seed(
        "data-digest-without-labels",
        "data/types.py",
        'for part, array in (("x", split.x), ("y", split.y)):',
        'for part, array in (("x", split.x),):',
        "corrected labels leave every stage as it was",
        ("tests/data/test_splits.py",),
    ),
    Seed(
        "test-split-not-withheld",
        "workbook.py",
        "data = data.withhold_test()",
        "data = replace(data)",
        "any stage may decide on the test split",
        ("tests/test_workbook.py::test_only_benchmark_sees_the_test_split",),
    ),
)
