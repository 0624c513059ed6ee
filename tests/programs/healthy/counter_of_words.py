"""A vocabulary counter whose keys are soon complete."""

import collections
import random

import torch

CASE_ID = "counter_of_words"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


def steps(n):
    rng = random.Random(0)
    words = collections.Counter()
    for _ in range(n):
        words.update(f"w{rng.randrange(200)}" for _ in range(50))
        torch.randn(64, 64).mm(torch.randn(64, 64))
        yield
