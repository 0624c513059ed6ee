"""Gradients of eight micro-batches are accumulated."""

import torch
from torch import nn

CASE_ID = "accumulate_eight"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


def steps(n):
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
    opt = torch.optim.Adam(net.parameters())
    total = 0.0
    for i in range(n):
        total = total + net(torch.randn(64, 64)).pow(2).mean()
        if i % 8 == 7:
            opt.zero_grad()
            total.backward()
            opt.step()
            total = 0.0
        yield
