"""Cycles with tensors that young collections find every twenty to forty steps."""

import torch

CASE_ID = "cycles_found_late"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


class Node:
    def __init__(self):
        self.me = self
        self.data = torch.zeros(16 * 1024)


def steps(n):
    kept = []
    for _ in range(n):
        Node()
        kept = [[k] for k in range(25)] + kept[:500]
        yield
    len(kept)
