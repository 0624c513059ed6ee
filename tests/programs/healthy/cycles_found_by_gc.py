"""Cycles with tensors that young collections find at once: enough objects are made for them to come."""

import torch

CASE_ID = "cycles_found_by_gc"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


class Node:
    def __init__(self):
        self.me = self
        self.data = torch.zeros(16 * 1024)


def steps(n):
    for _ in range(n):
        Node()
        rows = [[i] for i in range(3000)]
        len(rows)
        yield
