"""Losses joined to a tuple, each with its graph."""

import torch
from torch import nn

CASE_ID = "tuple_of_losses"
LEAKS = True
CULPRIT = 'losses'
FIX = 'item()'


def steps(n):
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
    losses = ()
    for _ in range(n):
        losses = losses + (net(torch.randn(64, 64)).mean(),)
        yield
