"""A usual training step: AdamW, warm-up, clipping, dropout."""

import torch
from torch import nn

CASE_ID = "scheduler_and_clip"
LEAKS = False
CULPRIT = None
FIX = 'none needed'


def steps(n):
    net = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Dropout(0.1), nn.LayerNorm(256), nn.Linear(256, 8))
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 50))
    for _ in range(n):
        loss = nn.functional.cross_entropy(net(torch.randn(64, 64)), torch.randint(0, 8, (64,)))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        sched.step()
        yield
