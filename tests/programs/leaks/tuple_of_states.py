"""A tuple that is replaced by a longer one in every forward."""

import torch
from torch import nn

CASE_ID = "tuple_of_states"
LEAKS = True
CULPRIT = 'states'
FIX = 'bound it'


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 256)
        self.states = ()

    @torch.no_grad()
    def forward(self, x):
        h = self.layer(x)
        self.states += (h,)
        return h


def steps(n):
    model = Model()
    for _ in range(n):
        model(torch.randn(32, 64))
        yield
