"""A gradient mask is put on a parameter with register_hook in every step."""

import torch
from torch import nn

CASE_ID = "parameter_hooks"
LEAKS = True
CULPRIT = '_backward_hooks'
FIX = 'register once'


def mask_gradients(net):
    for p in net.parameters():
        mask = (torch.rand_like(p) > 0.1).float()
        p.register_hook(lambda g, mask=mask: g * mask)


def steps(n):
    net = nn.Linear(96, 96)

    def train():
        mask_gradients(net)
        net(torch.randn(16, 96)).sum().backward()
        net.zero_grad()

    for _ in range(n):
        train()
        yield
