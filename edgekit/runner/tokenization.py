"""Token IDs of a text, by the vocabulary in the bundle: BERT's WordPiece, or GPT-2's byte-level BPE.

The library `tokenizers` does the work, on the device as in training. It is imported only when a text must be encoded.
A `tokenizer.json` may contain many kinds of vocabularies, but a bundle may hold only these two, so that every runner
gives the same IDs. Anything else is refused with an error that names it.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from edgekit.runner import bounded_json
from edgekit.runner.errors import InputError

if TYPE_CHECKING:
    import tokenizers
    import tokenizers.decoders

LARGEST_BYTES = 64 << 20
LARGEST_ID = 2**31 - 1
PADDING = ("[PAD]", "<pad>")
"""Names of the padding token in vocabularies without `padding`."""

MODEL_PARTS: dict[str, dict[str, tuple[str | None, ...]]] = {
    "WordPiece": {"normalizer": ("BertNormalizer", None), "pre_tokenizer": ("BertPreTokenizer",)},
    "BPE": {"normalizer": (None,), "pre_tokenizer": ("ByteLevel",)},
}
"""For each `type` of a file's `model`, the types of the parts that may precede it."""
POST_PROCESSORS = ("TemplateProcessing", "BertProcessing", "RobertaProcessing", "ByteLevel", None)
BPE_OPTIONS = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback")
"""BPE options that GPT-2 does not set. With `dropout`, a text would get other IDs each time."""


class Tokenizer:
    """An opened `tokenizer.json`.

    Attributes
    ----------
    vocabulary : dict
        The ID of each token, added tokens included.
    size : int
        One more than the highest ID.
    pad_id : int
        The ID that fills up a sample.
    special_tokens : int
        How many IDs an empty text has: those around every text, such as [CLS] and [SEP].
    """

    def __init__(self, library: tokenizers.Tokenizer, decoder: tokenizers.decoders.Decoder, pad_id: int | None) -> None:
        self._library, self._decoder = library, decoder
        self.vocabulary: dict[str, int] = library.get_vocab(with_added_tokens=True)
        self.size = 1 + max(self.vocabulary.values())
        self.special_tokens: int = library.num_special_tokens_to_add(False)
        padding_ids = (self.vocabulary[name] for name in PADDING if name in self.vocabulary)
        self.pad_id = pad_id if pad_id is not None else next(padding_ids, 0)

    def encode(self, text: str, max_tokens: int | None = None) -> list[int]:
        """Return the IDs of a text, special tokens included.

        If there are more than `max_tokens`, the last tokens of the text are dropped.
        """
        encoding = self._library.encode(text, add_special_tokens=False)
        if max_tokens is not None:
            encoding.truncate(max(0, max_tokens - self.special_tokens))
        ids: list[int] = self._library.post_process(encoding).ids
        return ids

    def words(self, text: str) -> list[str]:
        """Return the normalised words of a text, before the vocabulary splits them."""
        normalizer, pre_tokenizer = self._library.normalizer, self._library.pre_tokenizer
        normal = normalizer.normalize_str(text) if normalizer else text
        return [word for word, _ in pre_tokenizer.pre_tokenize_str(normal)]

    def readable(self, ids: list[int]) -> str:
        """Return a readable text for IDs, without special tokens. Spaces may differ from the original text."""
        around = set(self.encode(""))
        tokens = [self._library.id_to_token(each) or "" for each in ids if each not in around]
        return str(self._decoder.decode(tokens))


@functools.lru_cache(maxsize=4)  # a folder of texts shares one vocabulary, and reading it takes longer than using it
def read_tokenizer(content: bytes, name: str = "tokenizer.json") -> Tokenizer:
    """Open the bytes of a `tokenizer.json`.

    Raises
    ------
    InputError
        The file is not a tokenizer.json, is of a kind that bundles do not support, or `tokenizers` is not installed.
    """
    try:
        values = _parse(content)
        _check(values)
        return _open(values, content)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


def _parse(content: bytes) -> dict[str, Any]:
    if len(content) > LARGEST_BYTES:
        raise InputError(f"{len(content):,} bytes, but at most {LARGEST_BYTES:,} are read")
    try:
        values = bounded_json.loads(content)
    except ValueError as error:
        raise InputError(
            f"not JSON in UTF-8 ({error}); save it with Tokenizer.save of the library tokenizers"
        ) from None
    if not isinstance(values, dict) or not isinstance(values.get("model"), dict):
        raise InputError("not a tokenizer.json of the library tokenizers: it has no object 'model'")
    return values


def _check(values: dict[str, Any]) -> None:
    """Raise InputError if the file needs something that the two supported kinds do not have."""
    model = values["model"]
    kind = str(model.get("type"))
    if kind not in MODEL_PARTS:
        raise InputError(f"model.type: got {kind[:40]!r}; bundles support {' and '.join(MODEL_PARTS)}")
    for part, allowed in {**MODEL_PARTS[kind], "post_processor": POST_PROCESSORS}.items():
        for part_type in _types(values.get(part)):
            if part_type not in allowed:
                names = ", ".join(name or "none" for name in allowed)
                raise InputError(f"{part}: got {str(part_type)[:80]!r}; a {kind} vocabulary goes with {names}")
    vocabulary = model.get("vocab")
    if not isinstance(vocabulary, dict) or not vocabulary:
        raise InputError("model.vocab: no tokens; it must be an object of tokens and ids")
    if not all(type(value) is int and 0 <= value <= LARGEST_ID for value in vocabulary.values()):
        raise InputError("model.vocab: every id must be a whole number from 0")
    if kind == "WordPiece" and str(model.get("unk_token")) not in vocabulary:
        raise InputError(f"model.unk_token: got {model.get('unk_token')!r}, which is not in the vocabulary")
    for option in BPE_OPTIONS if kind == "BPE" else ():
        if model.get(option):
            raise InputError(
                f"model.{option}: got {str(model[option])[:80]!r}; a byte-level vocabulary must not have it"
            )


def _types(section: Any) -> list[str | None]:
    """Return the types of a `Sequence`'s parts, or of a single part. None stands for no part."""
    if not isinstance(section, dict):
        return [None if section is None else str(section)]
    kind = section.get("type")
    inner = section.get("pretokenizers") or section.get("processors")
    return [_types(part)[0] for part in inner] if kind == "Sequence" and isinstance(inner, list) else [str(kind)]


def _open(values: dict[str, Any], content: bytes) -> Tokenizer:
    try:
        from tokenizers import Tokenizer as Library
        from tokenizers import decoders, pre_tokenizers
    except ImportError:
        install = f"{sys.executable} -m pip install tokenizers"
        raise InputError(
            f"texts need the package tokenizers; run: {install} (or see `edgerun doctor`); or give a .npy of token ids"
        ) from None
    try:
        library = Library.from_buffer(content)
    except Exception as error:  # the library raises Exception itself
        raise InputError(f"the library tokenizers cannot read it: {' '.join(str(error).split())[:200]}") from None
    library.no_truncation()
    library.no_padding()
    if values["model"]["type"] == "BPE":
        missing = sorted(set(pre_tokenizers.ByteLevel.alphabet()) - set(values["model"]["vocab"]))
        if missing:
            raise InputError(f"model.vocab: byte {missing[0]!r} has no token; a byte-level vocabulary has all 256")
        decoder: decoders.Decoder = decoders.ByteLevel()
    else:
        decoder = decoders.WordPiece(values["model"].get("continuing_subword_prefix", "##"), cleanup=False)
    for position, token in enumerate(values.get("added_tokens") or ()):
        if library.token_to_id(token["content"]) != token["id"]:
            raise InputError(f"added_tokens[{position}]: got id {token['id']}, which belongs to another token")
    padding = values.get("padding")
    tokenizer = Tokenizer(library, decoder, padding.get("pad_id") if isinstance(padding, dict) else None)
    unknown = set(tokenizer.encode("")) - set(tokenizer.vocabulary.values())
    if unknown:
        raise InputError(f"post_processor: adds id {min(unknown)}, which no token has")
    return tokenizer
