"""The transformer of texts: what only fills up changes no answer, and wrong sizes are refused."""

from __future__ import annotations

import pytest
import torch

from edgekit.models.text_transformer import text_transformer


def network(pad_id: int = 0, **sizes: int) -> torch.nn.Module:
    torch.manual_seed(0)
    return text_transformer((12,), 3, vocabulary_size=50, pad_id=pad_id, **{"width": 16, "heads": 2, **sizes}).eval()


def test_padding_behind_a_text_changes_its_answer_by_no_more_than_rounding() -> None:
    torch.manual_seed(0)
    long = text_transformer((40,), 3, vocabulary_size=50, width=16, heads=2).eval()
    torch.manual_seed(0)
    short = text_transformer((12,), 3, vocabulary_size=50, width=16, heads=2).eval()
    ids = torch.randint(1, 50, (8, 9), dtype=torch.int32)
    filled = [torch.nn.functional.pad(ids, (0, size - 9)) for size in (12, 40)]
    with torch.no_grad():
        torch.testing.assert_close(short(filled[0]), long(filled[1]), atol=1e-4, rtol=1e-4)


def test_the_id_that_fills_up_is_the_datas_and_order_counts() -> None:
    ids = torch.tensor([[5, 6, 7, 1, 1, 1, 1, 1, 1, 1, 1, 1]], dtype=torch.int32)
    other = ids.clone()
    other[0, :2] = torch.tensor([6, 5])
    with torch.no_grad():
        of_one, of_nought = network(pad_id=1), network()
        assert not torch.equal(of_one(ids), of_nought(ids))
        assert not torch.allclose(of_one(ids), of_one(other), atol=1e-6)


def test_int32_and_int64_ids_are_answered_alike() -> None:
    ids = torch.randint(0, 50, (4, 12))
    with torch.no_grad():
        assert torch.equal(network()(ids), network()(ids.to(torch.int32)))


@pytest.mark.parametrize("sizes", [{"width": 15}, {"width": 16, "heads": 3}, {"layers": 0}, {"heads": 0}])
def test_sizes_that_do_not_fit_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="needs an even width that heads divide"):
        network(**sizes)


def test_samples_that_are_no_ids_are_refused() -> None:
    with pytest.raises(ValueError, match="needs token ids as input"):
        text_transformer((3, 8, 8), 2, vocabulary_size=9)
