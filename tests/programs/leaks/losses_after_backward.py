"""Losses kept in a list after backward: only the nodes of their graphs stay, a few KB a step."""

import torch
from torch import nn

CASE_ID = "losses_after_backward"
LEAKS = True
CULPRIT = 'losses'
FIX = 'losses.append(loss.item())'


def steps(n):
    net = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    losses = []
    for _ in range(n):
        loss = net(torch.randn(16, 32)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss)
        yield
