"""Options of the convert stage."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any, Literal, get_args

from pydantic import Field, field_validator, model_serializer

from edgekit.core.cache_key import top_module
from edgekit.core.config import BUILDER_PATTERN, TARGETS, StageConfig, Target
from edgekit.core.errors import ConfigError
from edgekit.targets import LOW_BIT_PRECISIONS, OPTIONAL_PRECISIONS

if TYPE_CHECKING:
    from edgekit.stages.convert.numerics import Tolerance

LIBRARIES: tuple[str, ...] = (
    "ai-edge-litert",
    "ai-edge-quantizer",
    "keras",
    "litert-converter",
    "litert-torch",
    "nncf",
    "numpy",
    "onnx",
    "onnx-graphsurgeon",
    "onnx2tf",
    "onnxruntime",
    "onnxscript",
    "openvino",
    "safetensors",
    "sng4onnx",
    "tensorflow",
    "tf-keras",
    "tf2onnx",
    "torch",
)

Precision = Literal["fp32", "fp16", "int8", "w8", "dynamic", "int4", "int4_dense", "int16x8"]
DEFAULT_PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16", "int8", "w8", "dynamic")
Model = Literal["baseline", "student", "pruned", "sparse"]


class ConvertConfig(StageConfig):
    """Options of the convert stage: what to convert, and how close outputs must stay to those of the step before."""

    targets: list[Target] = Field(
        default_factory=lambda: list(TARGETS), min_length=1, description="formats to convert to"
    )
    targets_named: bool = Field(True, description="whether the run fails if no file can be made for one of the targets")
    models: list[Model] = Field(
        default_factory=lambda: list(get_args(Model)),
        min_length=1,
        description="networks to convert; a network that equals an earlier one is skipped",
    )
    precisions: list[Precision] = Field(
        default_factory=lambda: list(DEFAULT_PRECISIONS),
        min_length=1,
        description="precisions to convert to, as far as a target supports them; w8: int8 weights; dynamic: int8 with "
        "ranges computed in each call; int4: 4-bit weights; int4_dense: 4-bit weights in dense layers only; int16x8: "
        "int16 activations",
    )
    calibration_samples: int = Field(
        200, ge=1, le=100_000, description="largest number of samples from which int8 ranges are determined"
    )
    check_samples: int = Field(
        200, ge=1, le=100_000, description="largest number of validation samples that each check compares"
    )
    fold_preprocess: bool = Field(
        False,
        description="whether the files accept the bytes of a raw sample: scale and normalize become the scale of a "
        "TFLite input if that is proven to be equal, and operators in other files",
    )
    sparse_weights: bool = Field(
        False,
        description="whether TFLite files store zero weights in a sparse format if that is smaller and gives the same "
        "bits",
    )
    reference_preprocess: str = Field(
        "",
        pattern=f"^$|{BUILDER_PATTERN}",
        description="function that prepared the samples when the model was trained elsewhere, as "
        "package.module:function; empty: it was trained here",
    )
    input_min_snr_db: float = Field(
        35.0, ge=0, le=200, description="smallest allowed SNR of the runner's input relative to that of training, dB"
    )
    calibration_max_outside: float = Field(
        0.02,
        ge=0,
        le=1,
        description="largest allowed share of a layer's values outside the calibrated range, not counting chance",
    )
    calibration_min_used: float = Field(
        0.1, ge=0, le=1, description="smallest allowed share of a layer's calibrated range that validation samples use"
    )
    timeout_s: float = Field(
        300.0, gt=0, le=86_400, description="time limit for converting one model to one target, seconds"
    )
    strict: bool = Field(
        False, description="whether the run ends if a variant fails; otherwise the variant is left out"
    )
    fp32_max_abs: float = Field(
        0.01, gt=0, description="largest allowed difference of a logit between the fp32 file and PyTorch"
    )
    fp32_min_snr_db: float = Field(
        60.0, ge=0, le=200, description="smallest allowed SNR of the fp32 file relative to PyTorch, dB"
    )
    fp32_min_top1_agreement: float = Field(
        0.99, ge=0, le=1, description="smallest allowed share of equal answers of the fp32 file and PyTorch"
    )
    fp16_min_snr_db: float = Field(
        40.0, ge=0, le=200, description="smallest allowed SNR of the fp16 file relative to the fp32 file, dB"
    )
    fp16_min_top1_agreement: float = Field(
        0.98, ge=0, le=1, description="smallest allowed share of equal answers of the fp16 file and the fp32 file"
    )
    int8_min_snr_db: float = Field(
        8.0,
        ge=-200,
        le=200,
        description="smallest allowed SNR of an int8, int4 or int16x8 file relative to the fp32 file, dB",
    )
    int8_min_top1_agreement: float = Field(
        0.9,
        ge=0,
        le=1,
        description="smallest allowed share of equal answers of an int8, int4 or int16x8 file and the fp32 file",
    )
    int8_max_layer_loss_db: float = Field(
        20.0, gt=0, le=200, description="largest allowed loss of a single layer in int8 with min-max ranges, dB"
    )
    further_min_snr_db: float = Field(
        20.0, ge=-200, le=200, description="smallest allowed SNR of a w8 or dynamic file relative to the fp32 file, dB"
    )
    further_min_top1_agreement: float = Field(
        0.95,
        ge=0,
        le=1,
        description="smallest allowed share of equal answers of a w8 or dynamic file and the fp32 file",
    )

    @field_validator("models", "precisions", "targets")
    @classmethod
    def _none_twice(cls, words: list[str]) -> list[str]:
        if len(set(words)) != len(words):
            raise ValueError(f"contains a duplicate: {words}; name each once")
        return words

    @model_serializer(mode="wrap")
    def _without_usual(self, plain: Any) -> dict[str, Any]:
        """Leave out `targets_named` if it is true, so that cache keys of earlier runs stay valid."""
        values: dict[str, Any] = plain(self)
        return {name: value for name, value in values.items() if name != "targets_named" or not value}

    def check_consistency(self) -> None:
        """Raise ConfigError if targets and precisions do not fit together.

        The same error is raised if the module of `reference_preprocess` does not exist.
        """
        from edgekit.targets import precisions

        module = top_module(self.reference_preprocess)
        if module and importlib.util.find_spec(module) is None:
            raise ConfigError(
                f"convert.reference_preprocess: got {self.reference_preprocess!r}, and there is no module {module!r} "
                "beside the config or in this folder"
            )

        offered_by = {target: precisions(target) for target in self.targets}
        unsupported = [target for target, offered in offered_by.items() if not set(offered) & set(self.precisions)]
        for target in unsupported:
            offered = offered_by[target]
            if self.targets_named or len(unsupported) == len(self.targets):
                raise ConfigError(
                    f"convert: precisions {self.precisions} and targets disagree: {target} offers "
                    f"{', '.join(offered)}; add one of them to convert.precisions or take {target} out of targets"
                )
        for precision in (each for each in self.precisions if each in LOW_BIT_PRECISIONS):
            supporting = [target for target in TARGETS if precision in precisions(target)]
            if not set(supporting) & set(self.targets):
                raise ConfigError(
                    f"convert.precisions: got {precision}, and no interpreter of targets {', '.join(self.targets)} has "
                    f"kernels for it; leave it out or add {' or '.join(supporting)} to targets"
                )

    def tolerance(self, precision: str) -> Tolerance:
        """Return the tolerance of files in this precision."""
        from edgekit.stages.convert.numerics import Tolerance

        if precision == "fp32":
            return Tolerance(self.fp32_min_top1_agreement, self.fp32_min_snr_db, self.fp32_max_abs)
        if precision == "fp16":
            return Tolerance(self.fp16_min_top1_agreement, self.fp16_min_snr_db)
        if precision in OPTIONAL_PRECISIONS and precision not in LOW_BIT_PRECISIONS:
            return Tolerance(self.further_min_top1_agreement, self.further_min_snr_db)
        return Tolerance(self.int8_min_top1_agreement, self.int8_min_snr_db)
