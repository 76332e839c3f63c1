"""How the report writes numbers and times."""

from __future__ import annotations

import math
from datetime import datetime

__all__ = ["format_count", "format_duration", "format_number", "format_when"]

GROUP = "\N{NARROW NO-BREAK SPACE}"
MINUS = "\N{MINUS SIGN}"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def format_number(value: float | None, *, digits: int = 3) -> str:
    """Write a measurement with `digits` significant digits; whole numbers below a million in full.

    Examples
    --------
    >>> [format_number(value) for value in (0.12345, -2.0, 1.5e-7, float("inf"), float("nan"))]
    ['0.123', '−2', '1.5×10⁻⁷', '∞', 'not a number']
    """
    if value is None:
        return "none"
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    sign, size = (MINUS if value < 0 else ""), abs(float(value))
    if size == 0:
        return "0"
    if size.is_integer() and size < 1e6:
        return sign + f"{size:,.0f}".replace(",", GROUP)
    mantissa, exponent = f"{size:.{digits - 1}e}".split("e")
    power = int(exponent)
    if power >= 6 or power < -3:
        mantissa = _trimmed(mantissa)
        return f"{sign}{mantissa}×10{str(power).translate(_SUPERSCRIPTS)}"
    text = f"{size:,.{max(0, digits - 1 - power)}f}".replace(",", GROUP)
    return sign + _trimmed(text)


def format_count(count: int, noun: str, *, plural: str = "") -> str:
    """Write a count with its noun.

    Examples
    --------
    >>> format_count(1, "trial"), format_count(2, "trial")
    ('1 trial', '2 trials')
    """
    number = f"{count:,}".replace(",", GROUP)
    return f"{number} {noun}" if count == 1 else f"{number} {plural or noun + 's'}"


def format_duration(seconds: float) -> str:
    """Write a time with the two units that matter.

    Examples
    --------
    >>> format_duration(0.25), format_duration(75), format_duration(7260)
    ('0.25 s', '1 min 15 s', '2 h 1 min')
    """
    if not math.isfinite(seconds):
        return "an unknown time"
    if seconds < 59.5:
        return f"{format_number(seconds, digits=2)} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} days {hours % 24} h"


def format_when(started: str) -> str:
    """Write an ISO 8601 time to the minute, in the zone in which it was recorded; other text stays as it is."""
    try:
        moment = datetime.fromisoformat(started)
    except ValueError:
        return started
    zone = moment.strftime(" %Z") if moment.tzinfo else ""
    return moment.strftime("%Y-%m-%d %H:%M") + zone


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text
