"""An unbounded cache of tables, one for each of ever new lengths."""

import functools

import torch

CASE_ID = "shape_lru"
LEAKS = True
CULPRIT = 'table'
FIX = 'bound the cache'


@functools.cache
def table(length):
    return torch.randn(length, 64)


def steps(n):
    table.cache_clear()
    for i in range(n):
        table(500 + i).sum().item()
        yield
