"""Train a small character-level transformer on text files, with a memory leak on request.

    python examples/train_text.py                       # a healthy run
    python examples/train_text.py --leak total          # a planted mistake, found while it trains
    python examples/train_text.py --steps 500 book.txt  # your own text

Every planted mistake is a function of one or two lines below, the way it is made in real training code.
"""

from __future__ import annotations

import argparse
import functools
import logging
import pathlib
import sysconfig
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import leakhunter

CONTEXT = 64
BATCH = 16


class Attention(nn.Module):
    """Causal self-attention over the characters so far."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.combine = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        query, key, value = (
            part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.project(x).chunk(3, dim=-1)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.combine(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """One layer: attention, then a small network for each character."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.before_network = nn.LayerNorm(width)
        self.network = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.before_attention(x))
        return x + self.network(self.before_network(x))


class TextModel(nn.Module):
    """Predicts the next character at every position: (batch, length) to (batch, length, characters)."""

    def __init__(self, characters: int, width: int = 64, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.character = nn.Embedding(characters, width)
        self.position = nn.Parameter(torch.randn(CONTEXT, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, characters)

    def forward(self, text: Tensor) -> Tensor:
        x = self.character(text) + self.position[: text.shape[1]]
        return self.head(self.norm(self.blocks(x)))


class Trainer:
    """The model, its optimizer, and the book-keeping where mistakes are made."""

    def __init__(self, model: TextModel) -> None:
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        self.total_loss: Any = 0.0
        self.average: Any = 0.0
        self.history: list[dict[str, Any]] = []
        self.masks: dict[Any, Tensor] = {}
        self.failures: list[Exception] = []
        self.spread = 0.0

    def step(self, batch: Tensor) -> Tensor:
        """One update on ``batch`` of shape (batch, CONTEXT + 1); the loss of it."""
        scores = self.model(batch[:, :-1])
        loss = functional.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss


# The planted mistakes. Each is called after every step.


def total(trainer: Trainer, batch: Tensor, loss: Tensor) -> None:
    """The sum of all losses for the log."""
    trainer.total_loss += loss


def average(trainer: Trainer, batch: Tensor, loss: Tensor) -> None:
    """The smoothed loss for the progress bar."""
    trainer.average = 0.98 * trainer.average + 0.02 * loss


def history(trainer: Trainer, batch: Tensor, loss: Tensor) -> None:
    """One record a step, for a plot at the end."""
    scores = trainer.model(batch[:, :-1])
    trainer.history.append({"loss": loss.item(), "confidence": scores.softmax(-1).amax(-1).mean()})


def masks(trainer: Trainer, batch: Tensor, loss: Tensor) -> None:
    """A cache of padding masks: tensors hash by identity, so no key is ever met again."""
    trainer.masks[batch] = batch != 0


def hooks(trainer: Trainer, batch: Tensor, loss: Tensor) -> None:
    """Activation statistics, with the hook registered again at every step."""

    def record(module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        trainer.spread = output.std().item()

    trainer.model.norm.register_forward_hook(record)


@functools.cache
def positions(batch: Tensor) -> Tensor:
    """Where each character stands; cached, as it was meant to depend on the length only."""
    return torch.arange(batch.numel()).view_as(batch)


def cache(trainer: Trainer, batch: Tensor, loss: Tensor) -> None:
    """A cached function called with a tensor."""
    positions(batch)


def penalty(trainer: Trainer, batch: Tensor, loss: Tensor) -> None:
    """A gradient penalty through ``backward(create_graph=True)``, which ties each gradient to its own graph."""
    head = nn.Linear(64, 64)
    loss = head(torch.randn(16, 64)).square().mean()
    loss.backward(create_graph=True)


def failures(trainer: Trainer, batch: Tensor, loss: Tensor) -> None:
    """Batches that could not be read are counted, their exceptions kept."""
    try:
        scores = trainer.model(batch[:, :-1])
        scores.view(3, -1, 1024 * 1024)
    except RuntimeError as error:
        trainer.failures.append(error)


LEAKS: dict[str, Callable[[Trainer, Tensor, Tensor], None]] = {
    function.__name__: function for function in (total, average, history, masks, hooks, cache, penalty, failures)
}


def read(files: list[pathlib.Path]) -> str:
    """The text of ``files``; by default Python's licence, or the README where Python came without it."""
    if not files:
        licence = pathlib.Path(sysconfig.get_path("stdlib")) / "LICENSE.txt"
        readme = pathlib.Path(__file__).resolve().parent.parent / "README.md"
        files = [licence if licence.exists() else readme]
    text = "\n".join(file.read_text(encoding="utf-8", errors="replace") for file in files)
    if len(text) < 10 * CONTEXT:
        raise SystemExit(f"train_text.py: {len(text)} characters are too few to learn from: give a longer text")
    return text


def batches(codes: Tensor, steps: int) -> Iterator[Tensor]:
    """``steps`` batches of random passages, each of shape (BATCH, CONTEXT + 1)."""
    passages = codes.unfold(0, CONTEXT + 1, 1)
    for _ in range(steps):
        yield passages[torch.randint(len(passages), (BATCH,))]


def train(text: str, steps: int, leak: str | None, watched: bool) -> None:
    """Train on ``text`` for ``steps`` steps and print the loss as it falls."""
    characters = sorted(set(text))
    number = {character: index for index, character in enumerate(characters)}
    codes = torch.tensor([number[character] for character in text])
    trainer = Trainer(TextModel(len(characters)))
    mistake = LEAKS[leak] if leak else None
    loader = batches(codes, steps)
    if watched:
        loader = leakhunter.watch(loader)
    for step, batch in enumerate(loader, start=1):
        loss = trainer.step(batch)
        if mistake is not None:
            mistake(trainer, batch, loss)
        if step == 1 or step % 50 == 0:
            print(f"step {step:4}  loss {loss.item():.3f}", flush=True)


def main() -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description="Train a small character-level transformer on text files.")
    parser.add_argument("files", nargs="*", type=pathlib.Path, help="text to learn (default: Python's licence)")
    parser.add_argument("--steps", type=int, default=200, help="how many updates (default: 200)")
    parser.add_argument("--leak", choices=sorted(LEAKS), help="switch on a planted mistake")
    parser.add_argument("--seed", type=int, default=0, help="for the same run again (default: 0)")
    parser.add_argument("--no-watch", action="store_true", help="train without leakhunter")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(options.seed)
    train(read(options.files), options.steps, options.leak, not options.no_watch)


if __name__ == "__main__":
    main()
