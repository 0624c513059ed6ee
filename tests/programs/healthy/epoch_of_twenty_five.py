"""Losses with graphs are summed for twenty-five steps, then used."""

import torch
from torch import nn

CASE_ID = "epoch_of_twenty_five"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


def steps(n):
    net = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 1))
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    losses = []
    for i in range(n):
        losses.append(net(torch.randn(64, 64)).pow(2).mean())
        if i % 25 == 24:
            opt.zero_grad()
            torch.stack(losses).mean().backward()
            opt.step()
            losses = []
        yield
