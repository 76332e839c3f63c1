"""Money: exchange rates of the European Central Bank from ``currency_converter``, interest and shares."""

from __future__ import annotations

from datetime import date as Date
from functools import lru_cache
from typing import Any

from assay.tooluse.world._registry import State, ToolError, tool
from assay.tooluse.world.mapping import find_country

PAIR = {"source": "currency", "target": "currency"}
LOAN = {"principal": "amount", "rate": "percent", "years": "years"}


@lru_cache(maxsize=1)
def _converter() -> Any:
    from currency_converter import CurrencyConverter

    return CurrencyConverter(fallback_on_missing_rate=True, fallback_on_wrong_date=False)


def exchange(amount: float, source: str, target: str, day: Date | None) -> float:
    """The amount in another currency, at the rate of a day, or at the last one that both have."""
    converter = _converter()
    for code in (source, target):
        if code not in converter.currencies:
            raise ToolError(f"no rate for the currency {code}")
    bounds = [converter.bounds[code] for code in (source, target)]
    first, last = max(one.first_date for one in bounds), min(one.last_date for one in bounds)
    day = last if day is None else day
    if not first <= day <= last:
        raise ToolError(f"no rate on {day}: known from {first} to {last}")
    return float(converter.convert(amount, source, target, date=day))


def read_date(text: str) -> Date:
    """The day of an ISO text."""
    try:
        return Date.fromisoformat(text)
    except ValueError as error:
        raise ToolError(f"{text} is not a day of the calendar") from error


@tool(
    "finance",
    "Convert an amount of money into another currency at the latest rate.",
    takes={"amount": "amount", **PAIR},
    gives={"amount": "amount"},
    groups=("convert",),
    hard=(
        "what {amount} {source} would be worth in {target} at today's exchange counter",
        "how many {target} I get right now for {amount} {source}",
    ),
)
def convert_latest(state: State, amount: float, source: str, target: str) -> dict[str, Any]:
    return {"amount": round(exchange(amount, source, target, None), 2)}


@tool(
    "finance",
    "Convert an amount of money into another currency at the rate of a past day.",
    takes={"amount": "amount", **PAIR, "date": "date"},
    gives={"amount": "amount"},
    groups=("convert",),
    hard=(
        "what {amount} {source} was worth in {target} back then, {date}",
        "how many {target} somebody got for {amount} {source} when it was {date}",
    ),
)
def convert_on_date(state: State, amount: float, source: str, target: str, date: str) -> dict[str, Any]:
    return {"amount": round(exchange(amount, source, target, read_date(date)), 2)}


@tool(
    "finance",
    "Latest exchange rate between two currencies.",
    takes=PAIR,
    gives={"value": "number"},
    groups=("quote",),
    hard=(
        "how {source} and {target} stand against each other now",
        "what a single {source} buys in {target} these days",
    ),
)
def rate_latest(state: State, source: str, target: str) -> dict[str, Any]:
    return {"value": round(exchange(1, source, target, None), 6)}


@tool(
    "finance",
    "Exchange rate between two currencies on a past day.",
    takes={**PAIR, "date": "date"},
    gives={"value": "number"},
    groups=("quote",),
    hard=(
        "how {source} and {target} stood against each other, {date}",
        "what a single {source} bought in {target} when it was {date}",
    ),
)
def rate_on_date(state: State, source: str, target: str, date: str) -> dict[str, Any]:
    return {"value": round(exchange(1, source, target, read_date(date)), 6)}


@tool(
    "finance",
    "Capital after some years of compound interest.",
    takes=LOAN,
    gives={"amount": "amount"},
    groups=("interest",),
    hard=(
        "what {principal} grow to over {years} winters at {rate} per cent if gains are left in and earn too",
        "how a nest egg of {principal} does at {rate} per cent, gains put back, {years} times over",
    ),
)
def compound_interest(state: State, principal: float, rate: float, years: int) -> dict[str, Any]:
    return {"amount": round(principal * (1 + rate / 100) ** years, 2)}


@tool(
    "finance",
    "Capital after some years of simple interest.",
    takes=LOAN,
    gives={"amount": "amount"},
    groups=("interest",),
    hard=(
        "what {principal} come to over {years} winters at {rate} per cent if gains are taken out each time",
        "how much is there from {principal} at {rate} per cent, gains paid out, {years} times over",
    ),
)
def simple_interest(state: State, principal: float, rate: float, years: int) -> dict[str, Any]:
    return {"amount": round(principal * (1 + rate / 100 * years), 2)}


@tool(
    "finance",
    "Monthly payment that repays a loan over some years.",
    takes=LOAN,
    gives={"amount": "amount"},
    groups=("interest",),
    hard=(
        "what I owe the bank on the first of every month for {principal} at {rate} per cent until {years} winters pass",
        "the steady instalment that clears a debt of {principal} at {rate} per cent within {years} winters",
    ),
)
def loan_payment(state: State, principal: float, rate: float, years: int) -> dict[str, Any]:
    monthly = rate / 1200
    count = 12 * years
    payment = principal / count if monthly == 0 else principal * monthly / (1 - (1 + monthly) ** -count)
    return {"amount": round(payment, 2)}


@tool(
    "finance",
    "Currency of a country by its ISO code.",
    takes={"country": "country"},
    gives={"code": "currency"},
    hard=("with what one pays in {country}", "which money I should carry to {country}"),
)
def currency_of_country(state: State, country: str) -> dict[str, Any]:
    return {"code": find_country(country)["currencycode"]}


@tool(
    "finance",
    "Change from one amount to another, in per cent.",
    takes={"before": "amount", "after": "amount"},
    gives={"value": "number"},
    groups=("share",),
    hard=(
        "by how much things rose or fell between {before} and {after}, relative to the start",
        "the relative jump going from {before} up or down to {after}",
    ),
)
def percent_change(state: State, before: float, after: float) -> dict[str, Any]:
    if before == 0:
        raise ToolError("a change from 0 has no percentage")
    return {"value": round(100 * (after - before) / before, 3)}


@tool(
    "finance",
    "Part of a whole, in per cent.",
    takes={"part": "amount", "whole": "amount"},
    gives={"value": "number"},
    groups=("share",),
    hard=(
        "which fraction {part} makes up out of {whole}, in hundredths",
        "how large a slice {part} is when there are {whole} in all, in hundredths",
    ),
)
def percent_of_whole(state: State, part: float, whole: float) -> dict[str, Any]:
    if whole == 0:
        raise ToolError("a part of 0 has no percentage")
    return {"value": round(100 * part / whole, 3)}
