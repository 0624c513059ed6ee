"""Slices of tensors are kept as numpy arrays; each keeps the whole tensor."""

import torch

CASE_ID = "numpy_views"
LEAKS = True
CULPRIT = 'heads'
FIX = 'copy()'


def steps(n):
    heads = []
    for _ in range(n):
        tokens = torch.randn(64, 1024)
        heads.append(tokens.numpy()[0])
        yield
