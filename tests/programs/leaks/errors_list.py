"""Caught exceptions are collected with their frames."""

import torch

CASE_ID = "errors_list"
LEAKS = True
CULPRIT = 'errors'
FIX = 'store str(error)'


def risky(x):
    work = torch.relu(x) * 2
    raise ValueError(f"bad batch of {work.numel()}")


def steps(n):
    errors = []
    for _ in range(n):
        try:
            risky(torch.randn(32 * 1024))
        except ValueError as error:
            errors.append(error)
        yield
