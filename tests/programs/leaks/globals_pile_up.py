"""A new module global is made in every step."""

import torch

CASE_ID = "globals_pile_up"
LEAKS = True
CULPRIT = '*'
FIX = 'do not write to globals()'


def steps(n):
    for i in range(n):
        globals()[f"tensor_{i}"] = torch.randn(32 * 1024)
        yield
