"""A set of all tensors seen."""

import torch

CASE_ID = "set_of_seen"
LEAKS = True
CULPRIT = 'seen'
FIX = 'weak references'


def steps(n):
    seen = set()
    for _ in range(n):
        batch = torch.randn(64 * 1024)
        seen.add(batch)
        yield
