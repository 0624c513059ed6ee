"""Copies of inputs as numpy arrays in a dict."""

import numpy as np
import torch

CASE_ID = "numpy_copies"
LEAKS = True
CULPRIT = 'inputs'
FIX = 'keep less'


def steps(n):
    inputs = {}
    for i in range(n):
        inputs[i] = np.array(torch.randn(32 * 1024).numpy())
        yield
