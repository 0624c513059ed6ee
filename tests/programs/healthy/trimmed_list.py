"""A list that is cut to its last twenty items by hand."""

import torch

CASE_ID = "trimmed_list"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


def steps(n):
    recent = []
    for _ in range(n):
        recent.append(torch.randn(32 * 1024))
        if len(recent) > 20:
            recent.pop(0)
        yield
