"""A shuffled list of indices is rebuilt every fifteen steps."""

import torch

CASE_ID = "pinned_epoch_list"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


def steps(n):
    data, order = torch.randn(15 * 64, 32), []
    for i in range(n):
        if not order:
            order = torch.randperm(len(data)).split(64)
            order = list(order)
        data[order.pop()].mean().item()
        yield
