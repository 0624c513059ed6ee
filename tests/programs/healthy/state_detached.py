"""A recurrent state that is detached between steps, on the model, as a tuple."""

import torch
from torch import nn

CASE_ID = "state_detached"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(16, 64)
        self.hidden = None

    def forward(self, x):
        out, hidden = self.lstm(x, self.hidden)
        self.hidden = tuple(part.detach() for part in hidden)
        return out


def steps(n):
    model = Tagger()
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(n):
        opt.zero_grad()
        model(torch.randn(4, 8, 16)).pow(2).mean().backward()
        opt.step()
        yield
