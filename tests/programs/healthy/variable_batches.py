"""Batches of very different sizes."""

import random

import torch
from torch import nn

CASE_ID = "variable_batches"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


def steps(n):
    rng = random.Random(0)
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
    opt = torch.optim.Adam(net.parameters())
    for _ in range(n):
        loss = net(torch.randn(rng.randrange(16, 512), 64)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        yield
