"""A weight average in a list of fixed length is computed with gradients on."""

from torch import nn

CASE_ID = "averaged_with_graph"
LEAKS = True
CULPRIT = 'average'
FIX = 'torch.no_grad()'


def steps(n):
    net = nn.Linear(128, 128)
    average = [p.detach().clone() for p in net.parameters()]
    for _ in range(n):
        average = [0.9 * a + 0.1 * p for a, p in zip(average, net.parameters())]
        yield
