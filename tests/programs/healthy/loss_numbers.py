"""The last loss is kept as a number for every step: what one should do."""

import torch
from torch import nn

CASE_ID = "loss_numbers"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


def steps(n):
    net = nn.Linear(32, 1)
    opt = torch.optim.Adam(net.parameters())
    losses = []
    for _ in range(n):
        loss = net(torch.randn(64, 32)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
        yield
