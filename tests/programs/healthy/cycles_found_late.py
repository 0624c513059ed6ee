"""Cycles with tensors that young collections find every few dozen steps."""

import gc

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
    rows = []
    every = gc.get_threshold()[0] // 35
    for _ in range(n):
        Node()
        rows += [[k] for k in range(every)]
        if len(rows) > 70 * every:
            rows.clear()
        yield
