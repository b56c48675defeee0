"""Memory that is kept for the next step: the kernel is not asked for it again."""

from __future__ import annotations

import resource

import torch

from edgekit.training import memory

STEPS, VALUES = 10, 5_000_000
PAGES = VALUES * 4 // resource.getpagesize()


def faults_of_steps() -> int:
    """Pages that the kernel hands out while a tensor of 20 MB is made and freed again and again."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(STEPS):
        torch.ones(VALUES)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def test_a_freed_tensor_is_used_again_while_a_training_lasts_and_given_back_afterwards() -> None:
    with memory.kept():
        torch.ones(VALUES)
        assert faults_of_steps() < PAGES
    assert faults_of_steps() > PAGES // 2


def test_it_is_left_in_order_by_an_error() -> None:
    try:
        with memory.kept():
            raise ValueError
    except ValueError:
        pass
    with memory.kept():
        torch.ones(VALUES)
        assert faults_of_steps() < PAGES
