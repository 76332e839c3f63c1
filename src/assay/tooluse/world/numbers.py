"""Numbers, units and texts: ``statistics``, ``pint`` and plain arithmetic."""

from __future__ import annotations

import math
import statistics
from functools import lru_cache
from typing import Any

from assay.tooluse.world._registry import State, ToolError, tool

LARGEST_FACTORED = 10**12


@lru_cache(maxsize=1)
def _units() -> Any:
    import pint

    return pint.UnitRegistry()


def convert(value: float, source: str, target: str) -> float:
    """A quantity in another unit."""
    return float(_units().Quantity(value, source).to(target).magnitude)


@tool(
    "numbers",
    "Arithmetic mean of numbers.",
    takes={"numbers": "numbers"},
    gives={"value": "number"},
    groups=("centre",),
    hard=("what each gets when {numbers} are pooled and shared out evenly", "the balance point of {numbers}"),
)
def mean_of(state: State, numbers: list[float]) -> dict[str, Any]:
    return {"value": round(statistics.fmean(numbers), 6)}


@tool(
    "numbers",
    "Median of numbers.",
    takes={"numbers": "numbers"},
    gives={"value": "number"},
    groups=("centre",),
    hard=(
        "the one in the middle once {numbers} are lined up by size",
        "what splits {numbers} into a lower and an upper half",
    ),
)
def median_of(state: State, numbers: list[float]) -> dict[str, Any]:
    return {"value": round(float(statistics.median(numbers)), 6)}


@tool(
    "numbers",
    "Sample standard deviation of numbers.",
    takes={"numbers": "numbers"},
    gives={"value": "number"},
    groups=("centre",),
    hard=("how widely {numbers} scatter", "how uneven {numbers} are among themselves, as statisticians measure it"),
)
def deviation_of(state: State, numbers: list[float]) -> dict[str, Any]:
    return {"value": round(statistics.stdev(numbers), 6)}


@tool(
    "numbers",
    "Kilometres as miles.",
    takes={"km": "km"},
    gives={"value": "number"},
    groups=("length",),
    hard=(
        "how an American would say a road of {km} thousand metres",
        "what {km} thousand metres read on a British road sign",
    ),
)
def kilometres_to_miles(state: State, km: float) -> dict[str, Any]:
    return {"value": round(convert(km, "kilometer", "mile"), 4)}


@tool(
    "numbers",
    "Kilometres as nautical miles.",
    takes={"km": "km"},
    gives={"value": "number"},
    groups=("length",),
    hard=("how a sailor would say a stretch of {km} thousand metres", "what {km} thousand metres are on a sea chart"),
)
def kilometres_to_nautical(state: State, km: float) -> dict[str, Any]:
    return {"value": round(convert(km, "kilometer", "nautical_mile"), 4)}


@tool(
    "numbers",
    "Metres as feet.",
    takes={"metres": "metres"},
    gives={"value": "number"},
    hard=(
        "how tall an American would call something of {metres} m",
        "what an altimeter in a cockpit shows at {metres} m",
    ),
)
def metres_to_feet(state: State, metres: float) -> dict[str, Any]:
    return {"value": round(convert(metres, "meter", "foot"), 4)}


@tool(
    "numbers",
    "Degrees Celsius as degrees Fahrenheit.",
    takes={"celsius": "degrees"},
    gives={"value": "number"},
    hard=(
        "what a thermometer in Texas shows when ours shows {celsius}",
        "how hot {celsius} of ours feels to an American reading",
    ),
)
def to_fahrenheit(state: State, celsius: float) -> dict[str, Any]:
    return {"value": round(convert(celsius, "degC", "degF"), 4)}


@tool(
    "numbers",
    "Grams as ounces.",
    takes={"grams": "grams"},
    gives={"value": "number"},
    hard=("what an American kitchen scale shows for {grams} g", "how a British recipe would ask for {grams} g"),
)
def to_ounces(state: State, grams: float) -> dict[str, Any]:
    return {"value": round(convert(grams, "gram", "ounce"), 4)}


@tool(
    "numbers",
    "Greatest common divisor of two whole numbers.",
    takes={"first": "integer", "second": "integer"},
    gives={"value": "integer"},
    groups=("divisor",),
    hard=(
        "the largest square tile that fits a floor of {first} by {second}",
        "into how many equal bags {first} pens and {second} pads go without a rest, at most",
    ),
)
def common_divisor(state: State, first: int, second: int) -> dict[str, Any]:
    return {"value": math.gcd(first, second)}


@tool(
    "numbers",
    "Least common multiple of two whole numbers.",
    takes={"first": "integer", "second": "integer"},
    gives={"value": "integer"},
    groups=("divisor",),
    hard=(
        "after how many minutes buses that leave every {first} and every {second} meet again",
        "when two wheels of {first} and {second} teeth are back as they began",
    ),
)
def common_multiple(state: State, first: int, second: int) -> dict[str, Any]:
    return {"value": math.lcm(first, second)}


def factors(number: int) -> list[int]:
    """Prime factors in order."""
    found, divisor = [], 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            found.append(divisor)
            number //= divisor
        divisor += 1
    return [*found, number] if number > 1 else found


@tool(
    "numbers",
    "Prime factors of a whole number.",
    takes={"number": "integer"},
    gives={"value": "text"},
    groups=("prime",),
    hard=(
        "out of which indivisible pieces {number} is multiplied",
        "how {number} breaks down when divided until nothing goes",
    ),
)
def prime_factors(state: State, number: int) -> dict[str, Any]:
    if number < 2:
        raise ToolError(f"{number} has no prime factors")
    return {"value": " x ".join(map(str, factors(number)))}


@tool(
    "numbers",
    "Next prime number above a whole number.",
    takes={"number": "integer"},
    gives={"value": "integer"},
    groups=("prime",),
    hard=("the first indivisible one beyond {number}", "how far one counts on from {number} until nothing divides"),
)
def next_prime(state: State, number: int) -> dict[str, Any]:
    candidate = number + 1
    while candidate < 2 or len(factors(candidate)) > 1:
        candidate += 1
    return {"value": candidate}


@tool(
    "numbers",
    "Number of words of a text.",
    takes={"text": "phrase"},
    gives={"number": "count"},
    groups=("count",),
    hard=(
        "how long '{text}' is for a telegram billed by the blank-separated piece",
        "into how many pieces '{text}' falls when cut at its blanks",
    ),
)
def word_count(state: State, text: str) -> dict[str, Any]:
    found = len(text.split())
    if not found:
        raise ToolError("the text is empty")
    return {"number": found}


@tool(
    "numbers",
    "Number of characters of a text, without blanks.",
    takes={"text": "phrase"},
    gives={"number": "count"},
    groups=("count",),
    hard=(
        "how many letters a sign painter bills for '{text}'",
        "how often one hits a key other than space to type '{text}'",
    ),
)
def character_count(state: State, text: str) -> dict[str, Any]:
    found = sum(not one.isspace() for one in text)
    if not found:
        raise ToolError("the text is empty")
    return {"number": found}
