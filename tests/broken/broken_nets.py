"""Builders of networks for vectors of 6 and 3 classes, each with a fault; what is right with them is the same."""

from __future__ import annotations

import sys
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

NOT_CALLABLE = 3


class Valid(nn.Module):
    """Nothing is wrong with it; the others change one thing each."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Any:
        return self.head(torch.relu(self.first(x)))


def valid() -> nn.Module:
    return Valid()


# what comes out


class _Changed(Valid):
    change = staticmethod(lambda x: x)

    def forward(self, x: Tensor) -> Any:
        return type(self).change(super().forward(x))


def _changed(change: Any) -> nn.Module:
    return type("Changed", (_Changed,), {"change": staticmethod(change)})()


@dataclass
class Output:
    logits: Tensor


Pair = namedtuple("Pair", "logits other")

OUTPUTS: dict[str, Any] = {
    "one_too_many": lambda x: torch.cat([x, x[:, :1]], 1),
    "flat": lambda x: x.flatten(),
    "no_batch": lambda x: x[0],
    "several": lambda x: (x, x),
    "one_in_a_list": lambda x: [x],
    "named": lambda x: Pair(x, x),
    "a_dict": lambda x: {"scores": x},
    "a_dict_of_logits": lambda x: {"logits": x, "loss": 0},
    "a_dataclass": Output,
    "none": lambda x: None,
    "a_number": lambda x: 3,
    "an_array": lambda x: x.detach().numpy(),
    "nan": lambda x: x / (x - x),
    "infinite": lambda x: x.masked_fill(x > x.min(), -torch.inf),
    "integers": lambda x: (100 * x).long(),
    "booleans": lambda x: x > 0,
    "complex": lambda x: x.to(torch.complex64),
    "double": lambda x: x.double(),
    "half": lambda x: x.half(),
    "of_the_class": lambda x: x.argmax(1),
    "sparse": lambda x: x.to_sparse(),
    "over_the_batch": lambda x: x - x.mean(0),
}


def outputs(name: str) -> nn.Module:
    return _changed(OUTPUTS[name])


# what happens on the way


class KeyMissing(Valid):
    def forward(self, x: Tensor) -> Tensor:
        return {"a": x}["k"]


class Raises(Valid):
    def forward(self, x: Tensor) -> Tensor:
        raise ValueError


class Unreached(Valid):
    def __init__(self) -> None:
        super().__init__()
        self.l, self.k = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.l(x) if x.mean() > 0 else self.k(x)


class RaisesOnValues(Valid):
    def forward(self, x: Tensor) -> Tensor:
        if x.abs().sum() > 0:
            raise RuntimeError("these values\nare not for me")
        return super().forward(x)


class RaisesAlone(Valid):
    def forward(self, x: Tensor) -> Tensor:
        assert len(x) > 1, "give me a batch"
        return super().forward(x)


class RaisesInABatch(Valid):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.view(1, 6))


class MixesABatch(Valid):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).flatten()[None, :3]


class RaisesInEval(Valid):
    def train(self, mode: bool = True) -> Any:
        if not mode:
            raise NotImplementedError("no eval")
        return super().train(mode)


class RaisesInTraining(Valid):
    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            raise IndexError("list index out of range")
        return super().forward(x)


class AuxiliaryInTraining(Valid):
    def forward(self, x: Tensor) -> Any:
        y = super().forward(x)
        return (y, y) if self.training else y


class ChangesItsInput(Valid):
    def forward(self, x: Tensor) -> Tensor:
        x *= 2
        return super().forward(x)


class CountsItsCalls(Valid):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x) + self.calls


class AlwaysDrops(Valid):
    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(super().forward(x) + 1)


class Endless(Valid):
    def forward(self, x: Tensor) -> Tensor:
        return self(x)


class Exits(Valid):
    def forward(self, x: Tensor) -> Tensor:
        sys.exit("enough")


class ExitsOnValues(Valid):
    def forward(self, x: Tensor) -> Tensor:
        if x.any():
            raise SystemExit(0)
        return super().forward(x)


class TakesTwo(Valid):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return super().forward(x)


class TakesNone(Valid):
    def forward(self) -> Tensor:
        return self.head.bias


class NoForward(nn.Module):
    pass


class ForgotSuper(nn.Module):
    def __init__(self) -> None:
        self.head = nn.Linear(6, 3)


class MisspeltLayer(Valid):
    def forward(self, x: Tensor) -> Tensor:
        return self.heads(x)


class Enormous(Valid):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + torch.zeros(10**16).sum()


class Nothing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, :3] * 2


class Scripted(Valid):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.jit.script(self.first)


class SkipsForZeros(Valid):
    """Not for a sample of the data."""

    def __init__(self) -> None:
        super().__init__()
        self.extra = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.first(x))
        return self.head(self.extra(y) if x.any() else y)


class OfWords(Valid):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.embedding(x, self.head.weight)


class Held(Valid):
    """Holds what cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.lines = (line for line in "abc")


class Uncounted(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        raise KeyError("saved")


class OwnGradient(Valid):
    def forward(self, x: Tensor) -> Tensor:
        return Uncounted.apply(super().forward(x))


class RaisesOnLarge(Valid):
    """Not on the few samples that a trial takes."""

    def forward(self, x: Tensor) -> Tensor:
        if x.max() > 1e6:
            raise KeyError("large")
        return super().forward(x)


# odd, but valid


class Shared(Valid):
    """One layer twice, one never, weights tied."""

    def __init__(self) -> None:
        super().__init__()
        self.again, self.dead = nn.Linear(8, 8), nn.Linear(4, 4)
        self.tied = nn.Linear(8, 8)
        self.tied.weight = self.again.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.tied(self.again(self.again(self.first(x)))))


class Usual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Dropout(0.5))
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.dropout(self.body(x), training=self.training))


class Talks(Valid):
    def forward(self, x: Tensor) -> Tensor:
        print("here I am\n" * 1000)
        return super().forward(x)


class Remembers(Valid):
    """A table that it makes when it is first called."""

    def forward(self, x: Tensor) -> Tensor:
        self.register_buffer("table", torch.arange(3.0), persistent=False)
        return super().forward(x) + self.table


class Spectral(Valid):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(torch.fft.fft(x).abs())


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 2


class GradientOfItsOwn(Valid):
    def forward(self, x: Tensor) -> Tensor:
        return Doubled.apply(super().forward(x))


class HalfFrozen(Valid):
    def __init__(self) -> None:
        super().__init__()
        self.first.requires_grad_(False)
        self.head.register_forward_hook(lambda *_: None)


class Mixer(Valid):
    """A choice of values, by torch.where."""

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return torch.where(x[:, :1] > 0, y, -y)


ODD_BUT_VALID = (Shared, Usual, Talks, Remembers, Spectral, GradientOfItsOwn, HalfFrozen, Mixer, RaisesOnLarge)

CLASSES = {
    found.__name__: found
    for found in list(globals().values())
    if isinstance(found, type)
    and issubclass(found, nn.Module)
    and found.__module__ == __name__
    and found not in (Valid, _Changed, *ODD_BUT_VALID)
}
"""Broken ones, by name."""


def on_the_way(name: str) -> nn.Module:
    return CLASSES[name]()


def large() -> nn.Module:
    return RaisesOnLarge()


def hooked() -> nn.Module:
    def hook(*_: Any) -> None:
        raise LookupError("in a hook")

    made = Valid()
    made.head.register_forward_hook(hook)
    return made


def double_weights() -> nn.Module:
    return Valid().double()


def half_weights() -> nn.Module:
    return Valid().half()


def frozen() -> nn.Module:
    return Valid().requires_grad_(False)


def too_narrow() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.Linear(8, 3))


def for_pictures() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.Flatten())


# builders


def returns_the_class() -> Any:
    return Valid


def returns_none() -> None:
    Valid()


def returns_a_number() -> int:
    return 3


async def is_awaited() -> nn.Module:
    return Valid()


def raises() -> nn.Module:
    raise KeyError("width")


def exits() -> nn.Module:
    sys.exit(3)


def endless() -> nn.Module:
    return endless()


def wants_more(width: int) -> nn.Module:
    return Valid()


def wants_words(*names: str) -> nn.Module:
    return nn.Linear(len(names[0]), 3)


def enormous() -> nn.Module:
    return nn.Linear(10**9, 10**9)
