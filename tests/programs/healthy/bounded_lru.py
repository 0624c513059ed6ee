"""A cache with room for sixty-four tables, of which forty are asked for."""

import functools

import torch

CASE_ID = "bounded_lru"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


@functools.lru_cache(maxsize=64)
def table(length):
    return torch.randn(length, 64)


def steps(n):
    table.cache_clear()
    for i in range(n):
        table(400 + i % 40).sum().item()
        yield
