"""A tensor of 1 KiB is kept in every step."""

import torch

CASE_ID = "small_tensors"
LEAKS = True
CULPRIT = 'kept'
FIX = 'keep less'


def steps(n):
    kept = []
    for _ in range(n):
        kept.append(torch.zeros(256))
        torch.randn(64, 64).mm(torch.randn(64, 64))
        yield
