"""Bytes and seconds as a person says them."""

from __future__ import annotations


def size(count: float) -> str:
    """Bytes: 64 B, 390 KiB, 14.1 MiB."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1023.5 or unit == "GiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" or abs(value) >= 100 else f"{value:.1f} {unit}"


def duration(seconds: float) -> str:
    """Seconds: 40 s, 11 h, 12 days."""
    for limit, unit, length in ((120, "s", 1), (7200, "min", 60), (48 * 3600, "h", 3600)):
        if seconds < limit:
            return f"{seconds / length:.0f} {unit}"
    days = seconds / 86400
    return f"{days:.0f} days" if days < 1000 else f"{days / 365:.0f} years"


def three_digits(number: float) -> int:
    """A number rounded to three significant digits."""
    return int(float(f"{number:.3g}"))
