"""A small transformer encoder for token ids, written so that every converter accepts it.

An embedding with fixed positions is followed by encoder layers, the mean over the tokens that are not padding, and a
linear layer. An encoder layer consists of attention and a two-layer perceptron, each after a layer norm (Vaswani et al.
2017; Xiong et al. 2020).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

MASKED = -20.0
"""Added to the attention score of padding. e^-20 is negligible, and int8 still has levels for the other scores."""


class SelfAttention(nn.Module):
    """(N, T, width) -> the same; `bias` (N, 1, 1, T) is added to the scores."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        tokens = x.shape[1]

        def split_heads(y: Tensor) -> Tensor:
            return y.reshape(-1, tokens, self.heads, self.size).transpose(1, 2)

        query, key, value = split_heads(self.query(x)), split_heads(self.key(x)), split_heads(self.value(x))
        scores = torch.matmul(query, key.transpose(2, 3)) * (1 / math.sqrt(self.size)) + bias
        mixed = torch.matmul(torch.softmax(scores, dim=-1), value)
        output: Tensor = self.out(mixed.transpose(1, 2).reshape(-1, tokens, self.heads * self.size))
        return output


class EncoderLayer(nn.Module):
    """Attention, then a perceptron for each token, both with a residual connection."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads)
        self.inner, self.relu, self.outer = nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x), bias)
        output: Tensor = x + self.outer(self.relu(self.inner(self.norm2(x))))
        return output


class TextTransformer(nn.Module):
    """Token ids (N, T) -> logits."""

    def __init__(
        self, tokens: int, num_classes: int, vocabulary_size: int, pad_id: int, width: int, layers: int, heads: int
    ) -> None:
        super().__init__()
        self.pad_id = pad_id
        self.embedding = nn.Embedding(vocabulary_size, width)
        nn.init.normal_(self.embedding.weight, std=0.1)
        self.register_buffer("positions", 0.1 * sinusoids(tokens, width))
        self.layers = nn.ModuleList([EncoderLayer(width, heads, 2 * width) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, num_classes)

    def forward(self, ids: Tensor) -> Tensor:
        ids = ids.to(torch.int32)
        mask = (ids != self.pad_id).to(torch.float32)
        bias = ((1.0 - mask) * MASKED).unsqueeze(1).unsqueeze(1)
        x = self.embedding(ids) + self.positions
        for layer in self.layers:
            x = layer(x, bias)
        weights = mask / mask.sum(dim=1, keepdim=True).clamp(min=1.0)
        logits: Tensor = self.head((self.norm(x) * weights.unsqueeze(2)).sum(dim=1))
        return logits


def sinusoids(tokens: int, width: int) -> Tensor:
    """Return (1, tokens, width): sines and cosines of the positions, wavelengths 2π to 20000π (Vaswani et al., 3.5)."""
    positions = torch.arange(tokens, dtype=torch.float64).unsqueeze(1)
    rates = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10000.0) / width))
    waves = torch.stack([torch.sin(positions * rates), torch.cos(positions * rates)], dim=2)
    return waves.reshape(1, tokens, width).float()


def text_transformer(
    input_shape: tuple[int, ...],
    num_classes: int,
    vocabulary_size: int,
    pad_id: int = 0,
    width: int = 64,
    layers: int = 2,
    heads: int = 4,
) -> nn.Module:
    """Build a network (N, T) token ids -> logits.

    `vocabulary_size` and `pad_id`, the id of padding, come from the data. With width 64, 2 layers, 2,000 ids, 64 tokens
    and 2 classes there are 194,946 parameters.
    """
    if len(input_shape) != 1:
        raise ValueError(f"text_transformer needs token ids as input, shape (tokens,), got {tuple(input_shape)}")
    if min(width, layers, heads) < 1 or width % heads or width % 2:
        raise ValueError(
            f"text_transformer needs an even width that heads divide, and layers >= 1, got width {width}, "
            f"heads {heads}, layers {layers}"
        )
    return TextTransformer(input_shape[0], num_classes, vocabulary_size, pad_id, width, layers, heads)
