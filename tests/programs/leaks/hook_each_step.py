"""A forward hook is registered in every step and never removed."""

import torch
from torch import nn

CASE_ID = "hook_each_step"
LEAKS = True
CULPRIT = '_forward_hooks'
FIX = 'handle.remove()'


def steps(n):
    net = nn.Linear(16, 16)
    for _ in range(n):
        seen = torch.zeros(4096)
        net.register_forward_hook(lambda module, args, out, seen=seen: seen.add_(0))
        with torch.no_grad():
            net(torch.randn(2, 16))
        yield
