"""A mock remembers the arguments of every call."""

from unittest import mock

import torch

CASE_ID = "mock_calls"
LEAKS = True
CULPRIT = 'mock_calls'
FIX = 'reset_mock()'


def steps(n):
    send = mock.Mock()
    for _ in range(n):
        send(torch.randn(32 * 1024))
        yield
