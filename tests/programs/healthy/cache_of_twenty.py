"""A cache that is complete after twenty steps."""

import torch

CASE_ID = "cache_of_twenty"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


def steps(n):
    cache = {}
    for i in range(n):
        key = (i * 7) % 20
        if key not in cache:
            cache[key] = torch.randn(64 * 1024)
        cache[key].mean().item()
        yield
