"""An encoder with dropout, trained with SGD."""

import torch
from torch import nn

CASE_ID = "small_transformer"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


def steps(n):
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    net = nn.TransformerEncoder(layer, 2)
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(n):
        opt.zero_grad()
        net(torch.randn(8, 16, 32)).pow(2).mean().backward()
        opt.step()
        yield
