"""Small `tokenizer.json` files of both kinds, made by the library `tokenizers`, and texts to try them on."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = [
    "Free entry in 2 a wkly comp to win FA Cup final tkts 21st May 2005. Text FA to 87121 to receive entry!",
    "Nah I don't think he goes to usf, he lives around here though; we're late, they'll wait, I'd say I've seen it.",
    "Ünïcödé naïve café crème brûlée Ελληνικά Русский текст 日本語のテキスト 中文字符 한국어 텍스트 हिन्दी العربية",
    "E=mc^2 + 3.14159 – “quotes” … €5 £3 ½ Ⅷ ² 🎉👩‍👩‍👧 ﬁne ǅ İstanbul ẞ straße",
]
PLANES = ((0x0, 0x80), (0x0, 0x800), (0x300, 0x370), (0x800, 0x10000), (0x10000, 0x20000), (0x20000, 0x110000))
PIECES = ("[CLS]", "[SEP]", "[MASK]", "<mask>", "<s>", " ", "  ", "\n", "\r\n", "\t", "'s", "'ll", "don't", "é", "İ",
          "\u0301", "\u0300\u0316", "가", "각", "\u1100\u1161", "中", "\u3000", "\u200b", "\xa0", "\x85", "\x1c", "\0",
          "\ufffd", "\ufeff", "Σ", "ΑΣ", "ß", "ẞ", "ǅ", "$", "+", "~", "_", "100", "½", "a" * 120)  # fmt: skip


def wordpiece(**options: Any) -> bytes:
    """BERT's, of the corpus; `options` are those of BertNormalizer."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(**options)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(CORPUS * 3, trainers.WordPieceTrainer(vocab_size=400, special_tokens=special))
    ids = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]", ids)
    return str(tokenizer.to_str()).encode()


def bpe(prefix: bool = False, roberta: bool = False) -> bytes:
    """GPT-2's, of the corpus; or RoBERTa's, with the token <mask> that takes the space before it along."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=special, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    if roberta:
        tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
        sep, cls = (("</s>", tokenizer.token_to_id("</s>")), ("<s>", tokenizer.token_to_id("<s>")))
        tokenizer.post_processor = processors.RobertaProcessing(sep, cls, add_prefix_space=prefix)
    return str(tokenizer.to_str()).encode()


def handmade_bpe() -> bytes:
    """RoBERTa's kind with a few merges, the same with every release of the library."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = ("Ġ t", "h e", "Ġt he", "i n", "Ġ w", "Ġw in", "e r", "Ã ©", "f r", "fr e", "' l", "'l l")
    merges = [pair.split(" ") for pair in pairs]
    special = ["<s>", "<pad>", "</s>"]
    tokens = [*special, *alphabet, *("".join(merge) for merge in merges)]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    values = {
        "version": "1.0",
        "added_tokens": [{"id": number, "content": token, **flags} for number, token in enumerate(special)],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": True,
                           "add_prefix_space": False},
        "model": {"type": "BPE", "vocab": {token: number for number, token in enumerate(tokens)}, "merges": merges},
    }  # fmt: skip
    return json.dumps(values).encode()


def changed(content: bytes, **parts: Any) -> bytes:
    """The file with other parts at its top."""
    return json.dumps({**json.loads(content), **parts}).encode()


def texts(count: int, seed: int = 0) -> Iterator[str]:
    """Random texts of every plane, of pieces that are odd, and of the corpus' words."""
    draw = random.Random(seed)
    words = " ".join(CORPUS).split()
    for _ in range(count):
        parts = []
        for _ in range(draw.randrange(12)):
            kind = draw.randrange(4)
            if kind == 0:
                first, last = draw.choice(PLANES)
                codes = (draw.randrange(first, last) for _ in range(draw.randrange(1, 6)))
                parts.append("".join(chr(code) for code in codes if not 0xD800 <= code < 0xE000))
            elif kind == 1:
                parts.append(draw.choice(PIECES))
            else:
                word = draw.choice(words)
                parts.append(word if kind == 2 else word[: draw.randrange(1, 9)].upper())
            parts.append(draw.choice(("", " ", " ")))
        yield "".join(parts)
