"""A stored slice keeps the storage of the whole tensor it was cut from."""

from leakhunter import source
from leakhunter.findings import Fix
from leakhunter.patterns.case import Case, Pattern


def recognise(case: Case) -> bool:
    """Stored tensors that use less than half of the storage they keep."""
    sample = case.suspect.sample
    return (
        case.suspect.state == "held"
        and case.suspect.container >= 0
        and 0 < sample.bytes <= sample.storage_bytes // 2
        and sample.storage_bytes - sample.bytes >= 1024
    )


def fix(case: Case) -> Fix:
    """Copy the slice, so that the rest can go."""
    sample = case.suspect.sample
    return Fix(
        f"store a copy of the slice (.clone()): {case.name} uses {sample.bytes:,} bytes of each storage of "
        f"{sample.storage_bytes:,}",
        _diff(case),
        "the container still grows, by the slices alone",
    )


def _diff(case: Case) -> str:
    if case.growth is None:
        return ""
    file = case.growth.file
    return source.diff(file, [source.called_on(file, node, "clone") for node in case.stored_tensors()])


PATTERN = Pattern(
    "LH203",
    "views keep large tensors alive",
    "A slice shares the storage of the tensor it was cut from, and a storage is freed as a whole or not at all.",
    recognise,
    fix,
)
