"""A record of plain numbers per step."""

import torch
from torch import nn

CASE_ID = "metrics_records"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


def steps(n):
    net = nn.Linear(32, 1)
    rows = []
    for i in range(n):
        with torch.no_grad():
            value = net(torch.randn(64, 32)).mean().item()
        rows.append({"step": i, "value": value, "name": f"run-{i}"})
        yield
