"""A running sum under a key of a dict."""

import torch
from torch import nn

CASE_ID = "stats_key"
LEAKS = True
CULPRIT = "['loss']"
FIX = "stats['loss'] += loss.item()"


def steps(n):
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
    stats = {"loss": 0.0, "count": 0}
    for _ in range(n):
        loss = net(torch.randn(64, 64)).pow(2).mean()
        stats["loss"] += loss
        stats["count"] += 1
        yield
