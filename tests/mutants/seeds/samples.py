"""Faults on the way from a raw sample to an input, and in the splits."""

from __future__ import annotations

from tests.mutants.seeds.seed import Seed

DATA = (
    Seed(
        "resize-axes-swapped",
        "runner/preprocess/transform.py",
        "_resample(_resample(x, width, axis=-2), height, axis=-3)",
        "_resample(_resample(x, width, axis=-3), height, axis=-2)",
        "pictures that are not square come out with their sides exchanged",
        ("tests/runner/preprocess/test_preprocess.py",),
    ),
    Seed(
        "layout-transposed",
        "runner/preprocess/transform.py",
        "x = x.transpose(0, 3, 1, 2)",
        "x = x.transpose(0, 3, 2, 1)",
        "OpenVINO and ONNX see every picture mirrored along its diagonal",
        ("tests/runner/preprocess/test_preprocess.py",),
    ),
    Seed(
        "mean-and-std-swapped",
        "runner/preprocess/transform.py",
        """    mean = np.asarray(step["mean"], dtype=np.float32)
    std = np.asarray(step["std"], dtype=np.float32)
""",
        """    mean = np.asarray(step["std"], dtype=np.float32)
    std = np.asarray(step["mean"], dtype=np.float32)
""",
        "inputs are normalised with the wrong figures",
        ("tests/runner/preprocess/test_preprocess.py",),
    ),
    Seed(
        "scale-divides",
        "runner/preprocess/transform.py",
        "np.multiply(x, factor, dtype=np.float32)",
        "np.divide(x, factor, dtype=np.float32)",
        "inputs are 65025 times too large",
        ("tests/runner/preprocess/test_preprocess.py",),
    ),
    Seed(
        "picture-sides-swapped",
        "runner/inputs/picture.py",
        'size = (resize["width"], resize["height"])',
        'size = (resize["height"], resize["width"])',
        "a picture of another size than the bundle's reaches the model scrambled",
        ("tests/runner/inputs/test_inputs.py",),
    ),
    Seed(
        "picture-not-turned",
        "runner/inputs/picture.py",
        'if decode_step["orientation"] == "apply" else None',
        'if decode_step["orientation"] == "ignore" else None',
        "a phone's picture is answered lying on its side",
        ("tests/data/sources/test_image_folder.py",),
    ),
    Seed(
        "window-of-the-wrong-place",
        "runner/inputs/windows.py",
        "window = x[number * stride : number * stride + length]",
        "window = x[number * length : number * length + length]",
        "the windows of a recording are not those that training cut",
        ("tests/runner/test_input_path.py",),
    ),
    Seed(
        "resampled-without-its-filter",
        "runner/inputs/resampling.py",
        "scale = reach(up, down), min(1.0, up / down)",
        "scale = reach(up, down), 1.0",
        "a sound of a higher rate folds its treble into what the network hears",
        ("tests/runner/inputs/test_resample.py",),
    ),
    Seed(
        "calibration-from-validation",
        "data/splits.py",
        'drawn["calibration"] = _calibration(remaining, strata',
        'drawn["calibration"] = _calibration(drawn.get("validation", remaining), strata',
        "int8 ranges are set on the samples that judge them",
        ("tests/data/test_splits.py",),
    ),
    Seed(
        "calibration-from-test",
        "data/splits.py",
        'drawn["calibration"] = _calibration(remaining, strata',
        'drawn["calibration"] = _calibration(drawn.get("test", remaining), strata',
        "int8 ranges are set on the test split, so its accuracy is no longer honest",
        ("tests/data/test_splits.py",),
    ),
    Seed(
        "train-test-overlap-unseen",
        "data/splits.py",
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
        "workbook/stage.py",
        "data = data.withhold_test()",
        "data = replace(data)",
        "any stage may decide on the test split",
        ("tests/workbook/test_stage.py::test_only_benchmark_sees_the_test_split",),
    ),
)
