"""Options of the prune stage."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from edgekit.core.config import TARGETS, Budget, Target, TuningStageConfig
from edgekit.core.errors import ConfigError
from edgekit.training.teachers import model_file

LIBRARIES = ("numpy", "torch", "torch-pruning", "safetensors", *model_file.LIBRARIES)

LATENCY_OPTIONS = ("latency_ratio", "cuts_per_step", "widths_per_group", "candidate_epochs")
RATIO_OPTIONS = ("ratio", "scope")
"""Options that only one method of structured pruning uses: `latency` uses `LATENCY_OPTIONS`, and `ratio` uses
`RATIO_OPTIONS`."""
TIMING_OPTIONS = ("rounds", "calls_per_round", "timeout_s")
"""Options that have an effect only if something is timed."""


class PruneConfig(TuningStageConfig):
    """Options of the prune stage: what is removed, in how many steps, and how the network is fine-tuned.

    `epochs` counts the fine-tuning epochs after each step. Fine-tuning minimizes the loss of the student that distill
    selected, unless `tune_with` asks for the labels alone.
    """

    enabled: bool = Field(True, description="whether to prune; `prune: false` is short for `enabled: false`")
    budget: Budget = Field(default_factory=lambda: Budget.model_validate({}))
    targets: list[Target] = Field(default_factory=lambda: list(TARGETS))
    epochs: int = Field(5, ge=1, le=10_000, description="fine-tuning epochs after each step")
    learning_rate: float = Field(0.02, gt=0, le=10, description="peak learning rate of fine-tuning")
    structured: Literal["ratio", "latency"] = Field(
        "ratio",
        description="how channels are chosen: ratio removes a share of the channels, latency makes the cuts that save "
        "the most time",
    )
    ratio: float = Field(
        0.5, gt=0, lt=0.95, description="share of the channels that has been removed after the last step"
    )
    steps: int = Field(3, ge=1, le=50, description="number of structured pruning steps")
    importance: Literal["l1", "l2", "taylor", "lamp"] = Field("l2", description="measure of a channel's importance")
    scope: Literal["layer", "global"] = Field(
        "layer", description="whether channels are ranked within each layer or across the whole network"
    )
    max_layer_ratio: float = Field(
        0.8, gt=0, lt=1, description="largest share of a layer's channels that may be removed"
    )
    taylor_samples: int = Field(
        512,
        ge=1,
        le=1_000_000,
        description="largest number of train samples whose gradients the importance taylor uses",
    )
    latency_ratio: float = Field(
        0.7,
        gt=0.05,
        lt=1,
        description="p50 to reach with the last step, as a share of the student's; only with structured: latency",
    )
    cuts_per_step: int = Field(
        2, ge=1, le=50, description="largest number of cuts in a step, each chosen by new timings"
    )
    widths_per_group: int = Field(
        3,
        ge=1,
        le=64,
        description="largest number of widths to time for each group of channels, the widest first",
    )
    candidate_epochs: int = Field(
        0,
        ge=0,
        le=1_000,
        description="fine-tuning epochs of each cut before one is chosen; 0: only its batch norms are updated",
    )
    from_scratch: bool = Field(
        False, description="whether a network of the pruned shape is also trained from new weights, for comparison"
    )
    scratch_epochs: int = Field(
        0,
        ge=0,
        le=10_000,
        description="epochs of training from new weights; 0: as many as the student and its fine-tuning had together",
    )
    channel_multiple: int = Field(4, ge=1, le=64, description="every number of channels is a multiple of this number")
    sparsity: float = Field(
        0.7, gt=0, lt=0.99, description="share of the weights that are zero after the last unstructured step"
    )
    sparsity_steps: int = Field(3, ge=1, le=50, description="number of unstructured pruning steps")
    sparsity_layers: Literal["all", "pointwise"] = Field(
        "all",
        description="layers whose weights are set to zero: all, or only 1x1 convolutions, for which there are sparse "
        "kernels on Arm",
    )
    measure: bool = Field(True, description="whether to time every step on the targets")
    rounds: int = Field(
        15, ge=10, le=10_000, description="rounds of timing; each times every step once, in rotating order"
    )
    calls_per_round: int = Field(20, ge=5, le=100_000, description="timed calls of each network in a round")
    timeout_s: float = Field(300.0, gt=0, le=86_400, description="time limit for converting one network, seconds")

    def check_consistency(self) -> None:
        """Raise ConfigError if `ratio` exceeds what may be removed from any single layer."""
        if self.structured == "ratio" and self.ratio > self.max_layer_ratio:
            raise ConfigError(
                f"prune: ratio ({self.ratio:g}) and max_layer_ratio ({self.max_layer_ratio:g}) disagree: ratio is "
                "larger than the share that any layer may lose; lower ratio or raise max_layer_ratio"
            )

    def unused(self) -> list[str]:
        """Return one sentence for each option that was set but has no effect because of another option."""
        is_by_latency = self.structured == "latency"
        without_effect = {
            "structured: ratio": () if is_by_latency else LATENCY_OPTIONS,
            "structured: latency": RATIO_OPTIONS if is_by_latency else (),
            "from_scratch: false": () if self.from_scratch else ("scratch_epochs",),
            f"importance: {self.importance}": () if self.importance == "taylor" else ("taylor_samples",),
            "measure: false": () if self.measure or is_by_latency else TIMING_OPTIONS,
        }
        return [
            f"prune.{name}: got {getattr(self, name)}; it has no effect with {reason}"
            for reason, names in without_effect.items()
            for name in names
            if name in self.model_fields_set
        ]
