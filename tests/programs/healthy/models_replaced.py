"""A new model in every step; the old one goes."""

import torch
from torch import nn

CASE_ID = "models_replaced"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


def steps(n):
    for _ in range(n):
        net = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 1))
        opt = torch.optim.Adam(net.parameters())
        net(torch.randn(16, 128)).mean().backward()
        opt.step()
        yield
