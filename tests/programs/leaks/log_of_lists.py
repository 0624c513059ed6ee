"""A defaultdict of lists collects losses with their graphs."""

import collections

import torch
from torch import nn

CASE_ID = "log_of_lists"
LEAKS = True
CULPRIT = 'log'
FIX = 'store numbers'


class Logger:
    def __init__(self):
        self.log = collections.defaultdict(list)

    def add(self, **values):
        for name, value in values.items():
            self.log[name].append(value)


def steps(n):
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
    logger = Logger()
    for _ in range(n):
        out = net(torch.randn(64, 64))
        logger.add(loss=out.pow(2).mean(), bias=out.mean())
        yield
