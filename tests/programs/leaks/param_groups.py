"""A parameter group is added to the optimizer in every step."""

import torch
from torch import nn

CASE_ID = "param_groups"
LEAKS = True
CULPRIT = 'param_groups'
FIX = 'build a new optimizer'


def steps(n):
    net = nn.Linear(64, 64)
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(n):
        extra = nn.Parameter(torch.zeros(32 * 1024))
        opt.add_param_group({"params": [extra]})
        yield
