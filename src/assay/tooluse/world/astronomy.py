"""Sun, moon and planets, computed by ``ephem``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from assay.tooluse.world._registry import State, ToolError, tool
from assay.tooluse.world.finance import read_date
from assay.tooluse.world.mapping import find_city

PLACE = {"lat": "lat", "lon": "lon", "date": "date"}
PLANET = {"planet": "planet", "date": "date"}


def _day(date: str) -> Any:
    import ephem

    return ephem.Date(read_date(date).isoformat().replace("-", "/"))


def _sun(lat: float, lon: float, date: str, event: str) -> dict[str, Any]:
    import ephem

    place = ephem.Observer()
    place.lat, place.lon, place.date = str(lat), str(lon), _day(date)
    try:
        found = getattr(place, event)(ephem.Sun())
    except ephem.CircumpolarError as error:
        raise ToolError(f"the sun doesn't cross the horizon there on {date}") from error
    return {"utc": found.datetime().strftime("%Y-%m-%dT%H:%M")}


@tool(
    "astronomy",
    "UTC time of sunrise at a position on a day.",
    takes=PLACE,
    gives={"utc": "text"},
    groups=("sun", "rise"),
    hard=(
        "when it gets light at {lat} north, {lon} east, {date}",
        "from when on one sees without a lamp at {lat} north, {lon} east, {date}",
    ),
)
def sunrise_at(state: State, lat: float, lon: float, date: str) -> dict[str, Any]:
    return _sun(lat, lon, date, "next_rising")


@tool(
    "astronomy",
    "UTC time of sunset at a position on a day.",
    takes=PLACE,
    gives={"utc": "text"},
    groups=("sun",),
    hard=(
        "when it gets dark at {lat} north, {lon} east, {date}",
        "until when one sees without a lamp at {lat} north, {lon} east, {date}",
    ),
)
def sunset_at(state: State, lat: float, lon: float, date: str) -> dict[str, Any]:
    return _sun(lat, lon, date, "next_setting")


@tool(
    "astronomy",
    "UTC time of sunrise in a city on a day.",
    takes={"city": "city", "date": "date"},
    gives={"utc": "text"},
    groups=("rise",),
    hard=("when it gets light for {city}, {date}", "how early larks sang over {city}, {date}"),
)
def sunrise_in_city(state: State, city: str, date: str) -> dict[str, Any]:
    found = find_city(city)
    return _sun(found["latitude"], found["longitude"], date, "next_rising")


@tool(
    "astronomy",
    "Illuminated share of the moon on a day, in per cent.",
    takes={"date": "date"},
    gives={"percent": "number"},
    hard=(
        "how much of Earth's companion was lit, {date}",
        "how bright the night was, {date}, going by Earth's companion",
    ),
)
def moon_phase(state: State, date: str) -> dict[str, Any]:
    import ephem

    return {"percent": round(float(ephem.Moon(_day(date)).phase), 2)}


def _next(event: str, date: str) -> dict[str, Any]:
    import ephem

    function: Callable[[Any], Any] = getattr(ephem, event)
    return {"day": function(_day(date)).datetime().strftime("%Y-%m-%d")}


@tool(
    "astronomy",
    "Day of the next full moon after a day.",
    takes={"date": "date"},
    gives={"day": "date"},
    groups=("moon",),
    hard=(
        "when werewolves come out once {date} has gone",
        "the soonest night after {date} with the whole disc shining",
    ),
)
def next_full_moon(state: State, date: str) -> dict[str, Any]:
    return _next("next_full_moon", date)


@tool(
    "astronomy",
    "Day of the next new moon after a day.",
    takes={"date": "date"},
    gives={"day": "date"},
    groups=("moon",),
    hard=("the soonest pitch-black night for stargazers after {date}", "when the disc vanishes once {date} has gone"),
)
def next_new_moon(state: State, date: str) -> dict[str, Any]:
    return _next("next_new_moon", date)


@tool(
    "astronomy",
    "Day of the next equinox after a day.",
    takes={"date": "date"},
    gives={"day": "date"},
    groups=("season",),
    hard=(
        "when light and dark are equally long again, once {date} has gone",
        "the soonest balance of bright and dark hours after {date}",
    ),
)
def next_equinox(state: State, date: str) -> dict[str, Any]:
    return _next("next_equinox", date)


@tool(
    "astronomy",
    "Day of the next solstice after a day.",
    takes={"date": "date"},
    gives={"day": "date"},
    groups=("season",),
    hard=(
        "when the noon shadow turns back again, once {date} has gone",
        "the soonest extreme of bright hours, longest or shortest, after {date}",
    ),
)
def next_solstice(state: State, date: str) -> dict[str, Any]:
    return _next("next_solstice", date)


def _planet(planet: str, date: str) -> Any:
    import ephem

    return getattr(ephem, planet)(_day(date))


@tool(
    "astronomy",
    "Distance of a planet from the Earth on a day, in astronomical units.",
    takes=PLANET,
    gives={"au": "number"},
    groups=("planet",),
    hard=("how far off {planet} was from us, {date}", "what a probe from here to {planet} had before it, {date}"),
)
def planet_distance(state: State, planet: str, date: str) -> dict[str, Any]:
    return {"au": round(float(_planet(planet, date).earth_distance), 5)}


@tool(
    "astronomy",
    "Apparent magnitude of a planet on a day.",
    takes=PLANET,
    gives={"value": "number"},
    groups=("planet",),
    hard=("how bright {planet} shone, {date}", "whether the naked eye caught {planet}, {date}, going by its glow"),
)
def planet_magnitude(state: State, planet: str, date: str) -> dict[str, Any]:
    return {"value": round(float(_planet(planet, date).mag), 2)}


@tool(
    "astronomy",
    "Constellation in which a planet stands on a day.",
    takes=PLANET,
    gives={"name": "text"},
    groups=("planet",),
    hard=("among which stars {planet} stood, {date}", "which picture in the sky {planet} wandered through, {date}"),
)
def planet_constellation(state: State, planet: str, date: str) -> dict[str, Any]:
    import ephem

    return {"name": str(ephem.constellation(_planet(planet, date))[1])}
