"""Every fifth step validates with gradients on and adds up the loss."""

import torch
from torch import nn

CASE_ID = "validation_with_grad"
LEAKS = True
CULPRIT = 'val_loss'
FIX = 'torch.no_grad()'


def steps(n):
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    val_loss = 0.0
    for i in range(n):
        opt.zero_grad()
        net(torch.randn(64, 64)).pow(2).mean().backward()
        opt.step()
        if i % 5 == 4:
            for _ in range(3):
                val_loss += net(torch.randn(256, 64)).pow(2).mean()
        yield
