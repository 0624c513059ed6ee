"""A copy of the weights is kept in every step."""

import copy

from torch import nn

CASE_ID = "weight_history"
LEAKS = True
CULPRIT = 'snapshots'
FIX = 'keep the last few'


def steps(n):
    net = nn.Linear(128, 128)
    snapshots = []
    for _ in range(n):
        snapshots.append(copy.deepcopy(net.state_dict()))
        yield
