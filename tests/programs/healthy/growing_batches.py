"""Batches grow for thirty steps and then stay (a curriculum)."""

import torch
from torch import nn

CASE_ID = "growing_batches"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


def steps(n):
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    for i in range(n):
        x = torch.randn(64 * (1 + min(i, 30)), 64)
        loss = net(x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        yield
