"""Back-propagation through eight steps, then the graph is cut."""

import torch
from torch import nn

CASE_ID = "bptt_over_eight"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


def steps(n):
    cell = nn.GRUCell(16, 64)
    opt = torch.optim.SGD(cell.parameters(), lr=0.01)
    h, loss = torch.zeros(32, 64), 0.0
    for i in range(n):
        h = cell(torch.randn(32, 16), h)
        loss = loss + h.pow(2).mean()
        if i % 8 == 7:
            opt.zero_grad()
            loss.backward()
            opt.step()
            h, loss = h.detach(), 0.0
        yield
