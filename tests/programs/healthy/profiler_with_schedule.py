"""A profiler with a schedule that throws its events away."""

import torch
from torch.profiler import ProfilerActivity, profile, schedule

CASE_ID = "profiler_with_schedule"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


def steps(n):
    y = torch.randn(32, 32)
    plan = schedule(wait=1, warmup=1, active=2, repeat=0)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan) as prof:
        for _ in range(n):
            for _ in range(20):
                y = torch.tanh(y + 0.1)
            prof.step()
            yield
