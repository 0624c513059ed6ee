"""Callbacks to run at the end close over losses with their graphs."""

import torch
from torch import nn

CASE_ID = "closures_in_list"
LEAKS = True
CULPRIT = 'at_end'
FIX = 'close over numbers'


def steps(n):
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
    at_end = []
    for _ in range(n):
        loss = net(torch.randn(64, 64)).pow(2).mean()
        at_end.append(lambda loss=loss: loss.item())
        yield
