"""Memory that a library takes at its first use."""

from leakhunter.findings import Fix
from leakhunter.patterns.pool import MIB, Layout, Pool, PoolPattern, Sign, single_step
from leakhunter.probe.cuda_history import CUBLAS
from leakhunter.units import size

# On Hopper and newer the workspace of cuBLAS has a size that tensors often have, so that nothing can be said there.
# The default of cuBLASLt, often taken in the same step.
CUBLASLT = MIB
# First use comes early; later a step of that size is somebody's decision.
FIRST = 20


def recognise(pool: Pool) -> Sign | None:
    """One step up within the first steps, to the byte as large as workspaces are."""
    sign = None if pool.pinned else single_step(pool.allocated)
    if sign is None or sign.since - pool.allocated.steps[0] > FIRST:
        return None
    return sign if sign.grown in (CUBLAS, CUBLAS + CUBLASLT) else None


def sentences(sign: Sign, pool: Pool, layout: Layout | None) -> tuple[str, ...]:
    """The step up."""
    del layout
    level = pool.allocated.steps[-1] - sign.since
    also = " and one of cuBLASLt" if sign.grown > CUBLAS else ""
    return (
        f"allocated rose once, in step {sign.since:,}, by {size(sign.grown)} ({int(sign.grown):,} bytes) and has been "
        f"level for {level:,} steps: to the byte the size of a workspace of cuBLAS{also}",
    )


def advice(sign: Sign, pool: Pool, layout: Layout | None) -> Fix:
    """It is meant to stay."""
    del sign, pool, layout
    return Fix(
        "nothing: it is taken once for every stream that multiplies matrices; CUBLAS_WORKSPACE_CONFIG sets its size",
        "",
        "with a smaller workspace some products are slower",
    )


PATTERN = PoolPattern(
    "LH925",
    "workspace of first use",
    "PyTorch allocates a workspace for cuBLAS at the first matrix product in a stream, and keeps it.",
    recognise,
    sentences,
    advice,
    "cuBLAS workspace on {}",
    " allocated",
)
