"""A Counter counts predicted labels as tensors, each of which is a key of its own."""

import collections

import torch
from torch import nn

CASE_ID = "counter_of_tensors"
LEAKS = True
CULPRIT = 'counts'
FIX = 'count label.item()'


class Evaluator:
    def __init__(self):
        self.counts = collections.Counter()
        self.net = nn.Linear(128, 10)

    @torch.no_grad()
    def evaluate(self, x):
        labels = self.net(x).argmax(1)
        self.counts.update(labels)


def steps(n):
    evaluator = Evaluator()
    for _ in range(n):
        evaluator.evaluate(torch.randn(32, 128))
        yield
