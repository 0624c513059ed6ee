"""The grad_fn of every loss is kept for drawing the graph later."""

import torch
from torch import nn

CASE_ID = "kept_grad_fn"
LEAKS = True
CULPRIT = 'roots'
FIX = 'draw now'


class Visualizer:
    __slots__ = ("roots",)

    def __init__(self):
        self.roots = []

    def watch(self, loss):
        self.roots.append(loss.grad_fn)


def steps(n):
    net = nn.Sequential(nn.Linear(32, 512), nn.GELU(), nn.Linear(512, 1))
    visualizer = Visualizer()
    for _ in range(n):
        visualizer.watch(net(torch.randn(128, 32)).pow(2).mean())
        yield
