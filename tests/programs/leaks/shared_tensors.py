"""Tensors in shared memory pile up."""

import torch

CASE_ID = "shared_tensors"
LEAKS = True
CULPRIT = 'shared'
FIX = 'drop them'


def steps(n):
    shared = []
    for _ in range(n):
        shared.append(torch.zeros(256 * 1024).share_memory_())
        yield
