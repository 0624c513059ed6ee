"""Predictions are kept as numpy arrays."""

import torch
from torch import nn

CASE_ID = "numpy_history"
LEAKS = True
CULPRIT = 'history'
FIX = 'keep less'


def steps(n):
    net = nn.Linear(64, 256)
    history = []
    for _ in range(n):
        with torch.no_grad():
            history.append(net(torch.randn(64, 64)).numpy())
        yield
