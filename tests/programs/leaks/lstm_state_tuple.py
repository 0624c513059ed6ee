"""The state of an LSTM, a tuple kept on the model, is never detached."""

import torch
from torch import nn

CASE_ID = "lstm_state_tuple"
LEAKS = True
CULPRIT = 'hidden'
FIX = 'detach the state'


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(16, 64)
        self.hidden = (torch.zeros(1, 8, 64), torch.zeros(1, 8, 64))

    def forward(self, x):
        out, self.hidden = self.lstm(x, self.hidden)
        return out


def steps(n):
    model = Tagger()
    for _ in range(n):
        model(torch.randn(4, 8, 16)).mean().item()
        yield
