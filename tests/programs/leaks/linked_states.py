"""Each state refers to the one before."""

import torch

CASE_ID = "linked_states"
LEAKS = True
CULPRIT = 'previous'
FIX = 'cut the link'


class State:
    def __init__(self, previous):
        self.previous = previous
        self.value = torch.randn(32 * 1024)


def steps(n):
    state = None
    for _ in range(n):
        state = State(state)
        yield
