"""Clocks and calendars: ``zoneinfo``, ``timezonefinder`` and ``holidays``."""

from __future__ import annotations

import calendar
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from assay.tooluse.world._registry import State, ToolError, tool
from assay.tooluse.world.finance import read_date

SPAN = {"start": "date", "end": "date"}


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ToolError(f"no time zone is called {name}") from error


@lru_cache(maxsize=1)
def _finder() -> Any:
    from timezonefinder import TimezoneFinder

    return TimezoneFinder()


@tool(
    "time",
    "Local time in a time zone at a UTC time.",
    takes={"timezone": "timezone", "utc": "instant"},
    gives={"value": "text", "day": "date"},
    hard=(
        "what the wall clock in {timezone} shows when Greenwich reads {utc}",
        "whether it's night for folks in {timezone} at Greenwich's {utc}",
    ),
)
def local_time(state: State, timezone: str, utc: str) -> dict[str, Any]:
    zone = _zone(timezone)
    try:
        instant = datetime.fromisoformat(utc)
    except ValueError as error:
        raise ToolError(f"{utc} is not a time") from error
    local = instant.replace(tzinfo=UTC).astimezone(zone)
    return {"value": local.strftime("%Y-%m-%dT%H:%M"), "day": local.date().isoformat()}


@tool(
    "time",
    "Offset of a time zone from UTC on a day, in hours.",
    takes={"timezone": "timezone", "date": "date"},
    gives={"hours": "number"},
    hard=(
        "how far ahead of Greenwich {timezone} was, {date}",
        "by how much watches in {timezone} differ from London's winter ones, {date}",
    ),
)
def utc_offset(state: State, timezone: str, date: str) -> dict[str, Any]:
    day = read_date(date)
    offset = datetime(day.year, day.month, day.day, 12, tzinfo=_zone(timezone)).utcoffset()
    assert offset is not None
    return {"hours": offset.total_seconds() / 3600}


@tool(
    "time",
    "Time zone at a position.",
    takes={"lat": "lat", "lon": "lon"},
    gives={"timezone": "timezone"},
    hard=("which clock rules at {lat} north, {lon} east", "how I set my watch on arriving at {lat} north, {lon} east"),
)
def timezone_at(state: State, lat: float, lon: float) -> dict[str, Any]:
    found = _finder().timezone_at(lat=lat, lng=lon)
    if found is None:
        raise ToolError("no time zone there")
    return {"timezone": found}


@tool(
    "time",
    "Day of the week of a date.",
    takes={"date": "date"},
    gives={"value": "text"},
    groups=("date-fact",),
    hard=(
        "whether {date} was a Monday, a Tuesday or what",
        "if offices were open on {date} going by Mondays and Sundays",
    ),
)
def weekday_of(state: State, date: str) -> dict[str, Any]:
    return {"value": calendar.day_name[read_date(date).weekday()]}


@tool(
    "time",
    "Number of a date within its year, from 1 to 366.",
    takes={"date": "date"},
    gives={"number": "count"},
    groups=("date-fact",),
    hard=("how many sunrises January to {date} make, counting each", "at which place from 1 to 366 one finds {date}"),
)
def ordinal_in_year(state: State, date: str) -> dict[str, Any]:
    return {"number": read_date(date).timetuple().tm_yday}


@tool(
    "time",
    "ISO week number of a date.",
    takes={"date": "date"},
    gives={"number": "count"},
    groups=("date-fact",),
    hard=(
        "into which of the fifty-two or fifty-three rows of a planner {date} falls",
        "what planners print at the row that holds {date}",
    ),
)
def iso_week(state: State, date: str) -> dict[str, Any]:
    return {"number": read_date(date).isocalendar().week}


@tool(
    "time",
    "Number of days between two dates.",
    takes=SPAN,
    gives={"days": "days"},
    groups=("span",),
    hard=(
        "how many nights one sleeps from {start} until {end}",
        "how long the wait was from {start} to {end}, in nights",
    ),
)
def days_between(state: State, start: str, end: str) -> dict[str, Any]:
    return {"days": (read_date(end) - read_date(start)).days}


@tool(
    "time",
    "Number of working days, Monday to Friday, from one date up to another.",
    takes=SPAN,
    gives={"days": "days"},
    groups=("span",),
    hard=(
        "how often the office opened from {start} until {end}, weekends off",
        "how many shifts fall from {start} up to {end} when weekends are free",
    ),
)
def working_days_between(state: State, start: str, end: str) -> dict[str, Any]:
    first, last = sorted((read_date(start), read_date(end)))
    count = sum((first + timedelta(n)).weekday() < 5 for n in range((last - first).days))
    return {"days": count if read_date(start) <= read_date(end) else -count}


@tool(
    "time",
    "The date some days after a date.",
    takes={"date": "date", "days": "days"},
    gives={"result": "date"},
    groups=("shift",),
    hard=(
        "when a deadline ends that runs for {days} nights from {date}",
        "what the calendar shows once {days} nights have gone since {date}",
    ),
)
def add_days(state: State, date: str, days: int) -> dict[str, Any]:
    try:
        return {"result": (read_date(date) + timedelta(days)).isoformat()}
    except OverflowError as error:
        raise ToolError("beyond the calendar") from error


@tool(
    "time",
    "The date some months after a date; the last day of a shorter month.",
    takes={"date": "date", "months": "months"},
    gives={"result": "date"},
    groups=("shift",),
    hard=(
        "when a rental ends that began {date} and lasts for {months} rents",
        "the calendar leaf reached after paying {months} rents from {date} on",
    ),
)
def add_months(state: State, date: str, months: int) -> dict[str, Any]:
    day = read_date(date)
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise ToolError("beyond the calendar")
    last = calendar.monthrange(year, month + 1)[1]
    return {"result": day.replace(year=year, month=month + 1, day=min(day.day, last)).isoformat()}


def _holidays(country: str, year: int) -> Any:
    import holidays

    try:
        return holidays.country_holidays(country, years=year, language="en_US")
    except NotImplementedError as error:
        raise ToolError(f"no holidays known for {country}") from error


@tool(
    "time",
    "Whether a date is a public holiday in a country, and which.",
    takes={"country": "country", "date": "date"},
    gives={"free": "boolean", "name": "text"},
    groups=("holiday",),
    hard=(
        "whether shops stay shut in {country}, {date}, and what is celebrated",
        "if people of {country} had off work, {date}, and why",
    ),
)
def holiday_on(state: State, country: str, date: str) -> dict[str, Any]:
    day = read_date(date)
    found = _holidays(country, day.year).get(day)
    return {"free": found is not None, "name": found or ""}


@tool(
    "time",
    "Number of public holidays of a country in a year, and the first.",
    takes={"country": "country", "year": "year"},
    gives={"number": "count", "first": "date"},
    groups=("holiday",),
    hard=("how often {country} had off work during {year}", "how generous {year} was to workers in {country}"),
)
def holidays_in_year(state: State, country: str, year: int) -> dict[str, Any]:
    found = sorted(_holidays(country, year))
    if not found:
        raise ToolError(f"no holidays known for {country} in {year}")
    return {"number": len(found), "first": found[0].isoformat()}
