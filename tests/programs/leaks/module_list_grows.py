"""A layer is appended to a ModuleList in every step."""

from torch import nn

CASE_ID = "module_list_grows"
LEAKS = True
CULPRIT = 'layers'
FIX = 'build once'


class Growing(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList()

    def grow(self):
        self.layers.append(nn.Linear(128, 128))


def steps(n):
    model = Growing()
    for _ in range(n):
        model.grow()
        yield
