"""A DataLoader with worker processes."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CASE_ID = "loader_with_workers"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


def steps(n):
    data = TensorDataset(torch.randn(64 * n, 32))
    net = nn.Linear(32, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    for (x,) in DataLoader(data, batch_size=64, num_workers=1):
        opt.zero_grad()
        net(x).pow(2).mean().backward()
        opt.step()
        yield
