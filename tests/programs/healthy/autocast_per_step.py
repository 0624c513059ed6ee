"""Autocast is entered in every step."""

import torch
from torch import nn

CASE_ID = "autocast_per_step"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


def steps(n):
    for _ in range(n):
        head = nn.Linear(256, 256)
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            head(torch.randn(4, 256)).float().sum().item()
        yield
