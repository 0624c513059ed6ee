"""Layers are added for the first dozen tasks, once each."""

import torch
from torch import nn

CASE_ID = "one_new_head_per_task"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


def steps(n):
    heads = nn.ModuleDict()
    for i in range(n):
        task = f"task{i % 12}"
        if task not in heads:
            heads[task] = nn.Linear(128, 128)
        with torch.no_grad():
            heads[task](torch.randn(8, 128)).sum().item()
        yield
