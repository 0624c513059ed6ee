"""Objects that reference each other slowly accumulate until a full collection every hundred steps."""

import gc

import torch
from torch import nn

CASE_ID = "cycles_between_collections"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


class Link:
    def __init__(self, x):
        self.x, self.me = x, self


def steps(n):
    net = nn.Linear(64, 64)
    for i in range(n):
        for _ in range(3):
            Link(net(torch.randn(8, 64)).detach())
        if i % 50 == 49:
            gc.collect()
        yield
