"""Gradients with their graph are stored on fresh inputs."""

import torch
from torch import nn

CASE_ID = "penalty_grad"
LEAKS = True
CULPRIT = 'grad'
FIX = 'autograd.grad'


def steps(n):
    net = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 1))
    for _ in range(n):
        x = torch.randn(64, 64, requires_grad=True)
        net(x).sum().backward(create_graph=True)
        x.grad.pow(2).sum().item()
        net.zero_grad()
        yield
