"""What can only be seen on a GPU, in one run of a few minutes: ``python benchmarks/gpu_check.py``.

What watching and probing cost on training steps of real size, ten leaks of 64 MiB a step, an out-of-memory error, CUDA
graphs, torch.compile, mixed precision, two streams and pinned memory. One line per check says what was measured, and
the last line is all of it as JSON. A check that fails does not stop the others; the exit status is 1 when one did.
"""

from __future__ import annotations

import argparse
import array
import collections
import contextlib
import gc
import inspect
import json
import logging
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import leakhunter

MIB = 2**20
# Steps that suffice for a finding.
STEPS = 80
Step = Callable[[], Any]


@dataclass(frozen=True)
class Sizes:
    """How large everything is. The small ones are for a dry run."""

    rounds: int = 2
    steps: int = 20
    image: int = 224
    batch: int = 16
    blocks: tuple[int, ...] = (3, 4, 6, 3)
    layers: int = 12
    width: int = 768
    heads: int = 12
    words: int = 50_257
    context: int = 512
    texts: int = 2
    leak: int = 64 * MIB
    room: int = 2048 * MIB
    backend: str = "inductor"


SMALL = Sizes(1, 4, 32, 2, (1, 1, 1, 1), 2, 32, 2, 100, 16, 2, MIB, 64 * MIB, "aot_eager")


# ---- models


class Bottleneck(nn.Module):
    """Three convolutions and a way around them."""

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inside, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, 4 * width, 1, bias=False),
            nn.BatchNorm2d(4 * width),
        )
        same = stride == 1 and inside == 4 * width
        self.around = nn.Identity() if same else nn.Conv2d(inside, 4 * width, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One block."""
        return functional.relu(self.body(x) + self.around(x))


def resnet(blocks: tuple[int, ...]) -> nn.Module:
    """A ResNet of bottlenecks; with 3, 4, 6 and 3 of them it has the size of a ResNet-50."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    inside = 64
    for stage, count in enumerate(blocks):
        width = 64 * 2**stage
        for block in range(count):
            layers.append(Bottleneck(inside, width, 2 if stage and not block else 1))
            inside = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 1000))


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.inside, self.outside = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One layer."""
        count, length, width = x.shape
        parts = self.inside(x).view(count, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.outside(mixed.transpose(1, 2).reshape(count, length, width))


class Transformer(nn.Module):
    """A decoder; with 12 layers of width 768 it has the size of GPT-2 small."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width = sizes.width
        self.words = nn.Embedding(sizes.words, width)
        self.places = nn.Parameter(torch.zeros(sizes.context, width))
        self.attention = nn.ModuleList(Attention(width, sizes.heads) for _ in range(sizes.layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * sizes.layers + 1))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(sizes.layers)
        )

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Scores of the next word at each place."""
        x = self.words(text) + self.places
        for layer, (attention, mlp) in enumerate(zip(self.attention, self.mlps, strict=True)):
            x = x + attention(self.norms[2 * layer](x))
            x = x + mlp(self.norms[2 * layer + 1](x))
        return self.norms[-1](x) @ self.words.weight.T


def training(net: nn.Module, data: torch.Tensor, wanted: torch.Tensor) -> Step:
    """One update of ``net``."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)

    def step() -> None:
        scores = net(data)
        loss = functional.cross_entropy(scores.flatten(0, -2), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def image_step(sizes: Sizes) -> Step:
    data = torch.randn(sizes.batch, 3, sizes.image, sizes.image, device="cuda")
    return training(resnet(sizes.blocks).cuda(), data, torch.zeros(sizes.batch, dtype=torch.long, device="cuda"))


def text_step(sizes: Sizes) -> Step:
    data = torch.zeros(sizes.texts, sizes.context, dtype=torch.long, device="cuda")
    return training(Transformer(sizes).cuda(), data, data)


def small_net(width: int = 256) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)).cuda()


# ---- what it costs


def sentry(sizes: Sizes) -> dict[str, Any]:
    """Microseconds of ``step()`` alone."""
    torch.ones(1, device="cuda")
    # Made beforehand: a list that grows would be a finding.
    took = array.array("d", bytes(8 * 100 * sizes.steps))
    with leakhunter.watch() as hunt:
        for step in range(len(took)):
            start = time.perf_counter()
            hunt.step()
            took[step] = time.perf_counter() - start
    return {"median_us": 1e6 * statistics.median(took), "mean_us": 1e6 * statistics.fmean(took), "budget_us": 80}


def overhead(step: Step, sizes: Sizes) -> dict[str, Any]:
    """The time of a step bare, watched, and while a probe records it, and how long the diagnosis takes."""
    for _ in range(3):
        step()
    bare, watched = [], []
    for _ in range(sizes.rounds):
        bare += intervals(range(sizes.steps), step)[0]
        watched += intervals(leakhunter.watch(range(sizes.steps)), step)[0]
    probed, longest = probe(step)
    typical = statistics.median(bare)
    return {
        "step_ms": 1000 * typical,
        "watched": statistics.median(watched) / typical,
        "probed": statistics.median(probed) / typical,
        "probe_steps": len(probed),
        "diagnosis_s": longest,
    }


def probe(step: Step) -> tuple[list[float], float]:
    """Seconds of the steps that a probe records, and of the longest step, which is the one with the diagnosis."""
    kept: list[torch.Tensor] = []

    def leaking() -> None:
        step()
        kept.append(torch.empty(MIB, dtype=torch.uint8, device="cuda"))

    took, recorded = intervals(leakhunter.watch(range(STEPS), on_leak=lambda finding: kept.clear()), leaking)
    probed = [seconds for seconds, on in zip(took, recorded, strict=True) if on]
    assert probed, "no probe was made"
    return probed, max(took)


def intervals(steps: Iterable[Any], step: Step) -> tuple[list[float], list[bool]]:
    """Seconds from the end of a step to the end of the next, and whether the allocator's history was on in it."""
    took, recorded = [], []
    last = None
    for _ in steps:
        on = torch._C._cuda_isHistoryEnabled()
        step()
        torch.cuda.synchronize()
        now = time.perf_counter()
        if last is not None:
            took.append(now - last)
            recorded.append(on)
        last = now
    return took, recorded


def image_overhead(sizes: Sizes) -> dict[str, Any]:
    """A ResNet-50."""
    return overhead(image_step(sizes), sizes)


def text_overhead(sizes: Sizes) -> dict[str, Any]:
    """A GPT-2 small."""
    return overhead(text_step(sizes), sizes)


# ---- ten leaks; the line on which their memory is born says so


def losses(count: int) -> Iterator[None]:
    history = []
    while True:
        x = torch.ones(count, device="cuda", requires_grad=True)  # born
        history.append((x * x).sum())
        del x
        yield


def hidden_state(count: int) -> Iterator[None]:
    weight = torch.ones(1, device="cuda", requires_grad=True)
    state = torch.zeros(count, device="cuda")
    while True:
        state = torch.tanh(state + weight)  # born
        yield


def dict_cache(count: int) -> Iterator[None]:
    cache: dict[int, torch.Tensor] = {}
    while True:
        cache[len(cache)] = torch.ones(count, device="cuda")  # born
        yield


def hooks(count: int) -> Iterator[None]:
    net = nn.Linear(1, 1).cuda()
    while True:
        seen = torch.ones(count, device="cuda")  # born
        net.register_forward_hook(lambda module, args, output, seen=seen: None)
        del seen
        yield


def graph_on_grad(count: int) -> Iterator[None]:
    while True:
        weight = torch.ones(count, device="cuda", requires_grad=True)  # born
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (weight * weight).sum().backward(create_graph=True)
        del weight
        yield


def exceptions(count: int) -> Iterator[None]:
    errors = []

    def fails() -> None:
        x = torch.ones(count, device="cuda")  # born
        raise ValueError(len(x))

    while True:
        try:
            fails()
        except ValueError as error:
            errors.append(error)
        yield


def closures(count: int) -> Iterator[None]:
    callbacks = []

    def later() -> Step:
        x = torch.ones(count, device="cuda")  # born
        return lambda: x.sum()

    while True:
        callbacks.append(later())
        yield


def endless_deque(count: int) -> Iterator[None]:
    recent: collections.deque[torch.Tensor] = collections.deque()
    while True:
        recent.append(torch.ones(count, device="cuda"))  # born
        yield


def running_average(count: int) -> Iterator[None]:
    average = torch.zeros((), device="cuda")
    while True:
        x = torch.ones(count, device="cuda", requires_grad=True)  # born
        average = 0.9 * average + 0.1 * (x * x).sum()
        del x
        yield


class Double(torch.autograd.Function):
    """Keeps its output on its ctx, which the output refers to."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """Twice the input."""
        ctx.out = 2 * x  # born
        return ctx.out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        """The gradient of the input."""
        return 2 * grad


def ctx_output(count: int) -> Iterator[None]:
    x = torch.ones(count, device="cuda", requires_grad=True)
    while True:
        Double.apply(x)
        yield


# Each with a part of what holds it.
LEAKS: dict[Callable[[int], Iterator[None]], str] = {
    losses: "history",
    hidden_state: "state",
    dict_cache: "cache",
    hooks: "_forward_hooks",
    graph_on_grad: "grad",
    exceptions: "errors",
    closures: "callbacks",
    endless_deque: "recent",
    running_average: "average",
    ctx_output: "out",
}


def born(*things: Any) -> set[int]:
    """The lines that say ``born``."""
    lines = set()
    for thing in things:
        source, first = inspect.getsourcelines(thing)
        lines |= {first + number for number, line in enumerate(source) if line.rstrip().endswith("# born")}
    return lines


def first_finding(loop: Iterable[Any], steps: int = STEPS) -> leakhunter.Finding | None:
    """What the first finding about device memory is, after at most ``steps`` steps."""
    found: list[leakhunter.Finding] = []
    hunt = leakhunter.watch(loop, on_leak=found.append)
    for number, _ in enumerate(hunt, 1):
        if number >= steps or any(is_of_device(one) for one in found):
            break
    del hunt
    return next((one for one in found if is_of_device(one)), None)


def is_of_device(finding: leakhunter.Finding) -> bool:
    return finding.meter.startswith("cuda:")


def told(finding: leakhunter.Finding) -> dict[str, Any]:
    """The part of a finding that is compared."""
    return {
        "pattern": finding.pattern,
        "step": finding.step,
        "mib_per_step": finding.bytes_per_step / MIB,
        "site": str(finding.site[0]) if finding.site else "",
        "holder": finding.holder.path,
        "state": finding.evidence.state,
    }


def leak(make: Callable[[int], Iterator[None]]) -> Callable[[Sizes], dict[str, Any]]:
    """The check of one leak."""

    def check(sizes: Sizes) -> dict[str, Any]:
        finding = first_finding(make(sizes.leak // 4))
        assert finding is not None, "not found"
        figures = told(finding)
        lines = {frame.line for frame in finding.site}
        figures["site_right"] = bool(lines & born(make, Double))
        labels = "".join(node.label for node in finding.holder.nodes)
        figures["holder_right"] = LEAKS[make] in finding.holder.path + labels
        assert figures["site_right"], f"another site: {figures['site']!r}, held by {figures['holder']}"
        assert figures["holder_right"], f"another holder: {figures['holder']}"
        return figures

    return check


# ---- the rest


class Texts(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one record."""
        self.texts.append(record.getMessage())


def out_of_memory(sizes: Sizes) -> dict[str, Any]:
    """A leaking loop until memory is full, and what is said of it."""
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, (torch.cuda.memory_reserved() + sizes.room) / total))
    logger, handler = logging.getLogger("leakhunter"), Texts()
    logger.addHandler(handler)
    hunt = leakhunter.watch(dict_cache(sizes.room // 50 // 4))
    error = ""
    try:
        for _ in zip(range(STEPS), hunt, strict=False):
            pass
    except torch.OutOfMemoryError as caught:
        error = str(caught)
        caught.__traceback__ = None
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        logger.removeHandler(handler)
    assert error, "memory did not fill up"
    report = hunt.report
    full = getattr(report, "out_of_memory", ())
    figures = {
        "steps": report.steps,
        "findings": [told(one) for one in report.open],
        "said": [text.splitlines()[0] for text in handler.texts],
        "cause": full[0].cause if full else "",
        "holders": [held.path for held in full[0].holders[:3]] if full else [],
    }
    assert full, f"nothing was said of it; findings: {figures['findings']}"
    assert full[0].holders, "nobody holds it"
    return figures


def errors_of_ours(texts: list[str]) -> list[str]:
    return [text for text in texts if "error of its own" in text]


def healthy(step: Step, steps: int = STEPS) -> dict[str, Any]:
    """A loop that must have no finding, and in which nothing of ours may fail."""
    handler = Texts()
    logging.getLogger("leakhunter").addHandler(handler)
    try:
        hunt = leakhunter.watch(range(steps))
        for _ in hunt:
            step()
    finally:
        logging.getLogger("leakhunter").removeHandler(handler)
    assert not errors_of_ours(handler.texts), errors_of_ours(handler.texts)[0]
    found = [f"{one.pattern} {one.meter} {one.holder.path}" for one in hunt.report.open]
    assert not found, f"accused without cause: {found}"
    return {"steps": hunt.report.steps, "findings": 0, "notes": list(hunt.report.notes)}


def cuda_graphs(sizes: Sizes) -> dict[str, Any]:
    """A captured step that is replayed, graphs captured in the loop, and one whose outputs are kept."""
    net, x = small_net(), torch.ones(64, 256, device="cuda")
    replayed = captured(net, x)[0]
    kept: list[Any] = []

    def keep() -> Iterator[None]:
        while True:
            kept.append(captured(net, x))
            yield

    figures = {"replayed": healthy(replayed.replay), "captured": healthy(lambda: captured(net, x))}
    finding = first_finding(keep())
    assert finding is not None, "graphs and outputs that are kept were not found"
    return {**figures, "kept": told(finding)}


def captured(net: nn.Module, x: torch.Tensor) -> tuple[Any, torch.Tensor]:
    """A graph of one forward, and its output."""
    with torch.no_grad():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            net(x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = net(x)
    return graph, output


def compiled(sizes: Sizes) -> dict[str, Any]:
    """A compiled training step: no finding, and not compiled again because of us."""
    from torch._dynamo.utils import counters

    run = torch.compile(small_net(), backend=sizes.backend)
    step = training(run, torch.ones(64, 256, device="cuda"), torch.zeros(64, dtype=torch.long, device="cuda"))
    step()
    graphs = counters["stats"]["unique_graphs"]
    figures = healthy(step)
    again = counters["stats"]["unique_graphs"] - graphs
    assert not again, f"compiled {again} times more"
    return {**figures, "backend": sizes.backend}


def compiled_leak(sizes: Sizes) -> dict[str, Any]:
    """Outputs of compiled code that are kept, which no dispatch mode sees: site and step of birth all the same."""
    run = torch.compile(small_net(), backend=sizes.backend)
    data = torch.ones(sizes.leak // 1024, 256, device="cuda")

    def leaking() -> Iterator[None]:
        kept = []
        while True:
            with torch.no_grad():
                kept.append(run(data))  # born
            yield

    finding = first_finding(leaking())
    assert finding is not None, "not found"
    assert {frame.line for frame in finding.site} & born(compiled_leak), f"another site: {told(finding)['site']!r}"
    assert finding.evidence.births, "no steps of birth"
    return {**told(finding), "births": len(finding.evidence.births), "backend": sizes.backend}


def mixed_precision(sizes: Sizes) -> dict[str, Any]:
    """Autocast with a gradient scaler: no finding, and the losses are the same to the last bit."""

    def run(wrap: Callable[[range], Iterable[int]]) -> tuple[Any, list[float]]:
        torch.manual_seed(0)
        net = small_net()
        optimizer, scaler = torch.optim.SGD(net.parameters(), 0.01), torch.amp.GradScaler("cuda")
        seen = []
        steps = wrap(range(60))
        for _ in steps:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = net(torch.randn(64, 256, device="cuda")).float().square().mean()
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            seen.append(loss.item())
        return steps, seen

    _, bare = run(lambda steps: steps)
    hunt, watched = run(leakhunter.watch)
    assert bare == watched, "watching changed the losses"
    assert not hunt.report.open, f"accused without cause: {[one.pattern for one in hunt.report.open]}"
    return {"losses_equal": True, "first_loss": bare[0], "last_loss": bare[-1]}


def two_streams(sizes: Sizes) -> dict[str, Any]:
    """Blocks that wait for another stream are no leak, and a leak on another stream is found."""
    side = torch.cuda.Stream()
    count = sizes.leak // 4

    def crossing() -> None:
        x = torch.ones(count // 16, device="cuda")
        with torch.cuda.stream(side):
            side.wait_stream(torch.cuda.default_stream())
            x.add_(1)
            x.record_stream(side)

    def leaking() -> Iterator[None]:
        kept = []
        while True:
            with torch.cuda.stream(side):
                kept.append(torch.ones(count, device="cuda"))  # born
            yield

    figures = healthy(crossing)
    finding = first_finding(leaking())
    assert finding is not None, "its leak was not found"
    assert {frame.line for frame in finding.site} & born(two_streams), f"another site: {told(finding)['site']!r}"
    return {**figures, "leak": told(finding)}


def pinned_memory(sizes: Sizes) -> dict[str, Any]:
    """Copies from pinned memory are no leak, and pinned batches that are kept are found."""
    host = torch.ones(sizes.leak // 16).pin_memory()
    figures = healthy(lambda: host.to("cuda", non_blocking=True))
    found: list[leakhunter.Finding] = []
    kept = []
    for _ in leakhunter.watch(range(STEPS), on_leak=found.append):
        kept.append(torch.ones(sizes.leak // 64).pin_memory())
        if found:
            break
    assert found, "pinned batches that are kept were not found"
    assert "kept" in found[0].holder.path, f"another holder: {found[0].holder.path}"
    return {**figures, "leak": {**told(found[0]), "meter": found[0].meter}}


CHECKS: dict[str, Callable[[Sizes], dict[str, Any]]] = {
    "sentry": sentry,
    "resnet-50": image_overhead,
    "gpt-2 small": text_overhead,
    **{f"leak: {make.__name__.replace('_', ' ')}": leak(make) for make in LEAKS},
    "out of memory": out_of_memory,
    "cuda graphs": cuda_graphs,
    "torch.compile": compiled,
    "torch.compile leak": compiled_leak,
    "mixed precision": mixed_precision,
    "two streams": two_streams,
    "pinned memory": pinned_memory,
}


def run(name: str, sizes: Sizes, until: float) -> dict[str, Any]:
    """One check, whatever becomes of it."""
    start = time.perf_counter()
    figures: dict[str, Any] = {"ok": False}
    if start > until:
        return figures | {"error": "left out: the time was up"}
    try:
        figures = {"ok": True, **CHECKS[name](sizes)}
    except Exception as error:
        figures["error"] = f"{type(error).__name__}: {error}".splitlines()[0]
    figures["seconds"] = time.perf_counter() - start
    with contextlib.suppress(Exception):
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    return figures


def line(name: str, figures: dict[str, Any]) -> str:
    """A check in one line."""
    shown = {key: value for key, value in figures.items() if key != "ok" and value not in ([], "")}
    text = "  ".join(f"{key} {brief(value)}" for key, value in shown.items())
    return f"{'ok' if figures['ok'] else 'FAILED':7}{name:24}{text}"


def brief(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, dict):
        return "(" + ", ".join(f"{key} {brief(item)}" for key, item in value.items() if item not in ([], "")) + ")"
    if isinstance(value, list):
        return "[" + ", ".join(map(brief, value)) + "]"
    return str(value)


def machine() -> dict[str, Any]:
    """Where this ran."""
    free, total = torch.cuda.mem_get_info()
    return {
        "gpu": torch.cuda.get_device_name(),
        "gpus": torch.cuda.device_count(),
        "free_mib": free // MIB,
        "total_mib": total // MIB,
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "python": sys.version.split()[0],
        "leakhunter": leakhunter.__version__,
    }


def main() -> int:
    """Run the checks and print; 0 when all are well, 1 when one is not, 2 without a GPU."""
    parser = argparse.ArgumentParser(description="What can only be seen on a GPU, in one run of a few minutes.")
    parser.add_argument("--small", action="store_true", help="tiny sizes, for a dry run")
    parser.add_argument("--only", metavar="TEXT", default="", help="checks whose name has this text in it")
    parser.add_argument("--seconds", type=float, default=270, help="begin no check after so long (default: 270)")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("This check needs a GPU that PyTorch can use through CUDA, and there is none here.", file=sys.stderr)
        return 2
    logger = logging.getLogger("leakhunter")
    logger.propagate = False
    logger.addHandler(logging.NullHandler())
    logger.setLevel(logging.INFO)
    torch.cuda.init()
    result: dict[str, Any] = {"machine": machine(), "small": options.small, "checks": {}}
    print("  ".join(f"{key} {value}" for key, value in result["machine"].items()), flush=True)
    until = time.perf_counter() + options.seconds
    for name in CHECKS:
        if options.only in name:
            figures = result["checks"][name] = run(name, SMALL if options.small else Sizes(), until)
            print(line(name, figures), flush=True)
    print(json.dumps(result))
    return 0 if all(figures["ok"] for figures in result["checks"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
