"""An average of the weights under no_grad."""

import copy

import torch
from torch import nn

CASE_ID = "ema_of_weights"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


def steps(n):
    net = nn.Linear(256, 256)
    average = copy.deepcopy(net)
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(n):
        opt.zero_grad()
        net(torch.randn(16, 256)).pow(2).mean().backward()
        opt.step()
        with torch.no_grad():
            for a, p in zip(average.parameters(), net.parameters()):
                a.mul_(0.9).add_(p, alpha=0.1)
        yield
