"""Every tenth step evaluates, with lists of its own."""

import torch
from torch import nn

CASE_ID = "evaluation_every_ten"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


def evaluate(net):
    outputs = []
    with torch.no_grad():
        for _ in range(5):
            outputs.append(net(torch.randn(256, 64)))
    return torch.cat(outputs).mean().item()


def steps(n):
    net = nn.Linear(64, 256)
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    for i in range(n):
        opt.zero_grad()
        net(torch.randn(64, 64)).pow(2).mean().backward()
        opt.step()
        if i % 10 == 9:
            evaluate(net)
        yield
