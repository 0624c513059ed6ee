"""The batch and its outputs are kept until the next step; sizes drift upwards for seventy steps, then wander."""

import random

import torch
from torch import nn

CASE_ID = "drifting_batches"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


def steps(n):
    rng = random.Random(4)
    net = nn.Linear(64, 64)
    size = 32.0
    for i in range(n):
        size = max(16.0, min(600.0, size + rng.uniform(-6, 18 if i < 70 else 6)))
        batch = torch.randn(int(size), 64)
        out = net(batch)
        out.pow(2).mean().backward()
        net.zero_grad(set_to_none=False)
        yield
