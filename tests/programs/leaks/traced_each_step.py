"""A function with a constant is traced in every step."""

import torch

CASE_ID = "traced_each_step"
LEAKS = True
CULPRIT = 'native'
FIX = 'trace once'


def steps(n):
    for _ in range(n):
        table = torch.randn(64 * 1024)
        traced = torch.jit.trace(lambda t, table=table: t * table, (torch.randn(64 * 1024),), check_trace=False)
        traced(torch.randn(64 * 1024)).mean().item()
        yield
