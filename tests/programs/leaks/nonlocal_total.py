"""A closure adds to a variable of the enclosing function."""

import torch
from torch import nn

CASE_ID = "nonlocal_total"
LEAKS = True
CULPRIT = 'total'
FIX = 'total += loss.item()'


def make_tracker():
    total = torch.zeros(())

    def track(loss):
        nonlocal total
        total = total + loss
        return total

    return track


def steps(n):
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
    track = make_tracker()
    for _ in range(n):
        track(net(torch.randn(64, 64)).pow(2).mean())
        yield
