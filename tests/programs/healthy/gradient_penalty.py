"""A gradient penalty with create_graph, done with autograd.grad."""

import torch
from torch import nn

CASE_ID = "gradient_penalty"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


def steps(n):
    net = nn.Sequential(nn.Linear(32, 128), nn.Tanh(), nn.Linear(128, 1))
    opt = torch.optim.Adam(net.parameters())
    for _ in range(n):
        x = torch.randn(64, 32, requires_grad=True)
        (grad,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        loss = (grad.norm(dim=1) - 1).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        yield
