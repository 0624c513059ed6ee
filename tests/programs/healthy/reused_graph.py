"""A graph made before the loop is used in every step."""

import torch

CASE_ID = "reused_graph"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


def steps(n):
    w = torch.randn(256, 256, requires_grad=True)
    penalty = w.pow(2).sum()
    for _ in range(n):
        (penalty + (w @ torch.randn(256, 8)).sum()).backward(retain_graph=True)
        w.grad = None
        yield
