"""Airports and routes, from the data of ``airportsdata``."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

from assay.tooluse.matchers import haversine_km
from assay.tooluse.world._registry import State, ToolError, tool

FEET = 0.3048
AIRPORT = {"name": "text", "city": "city", "country": "country", "lat": "lat", "lon": "lon"}


@lru_cache(maxsize=2)
def airports(code: Literal["IATA", "ICAO"]) -> dict[str, Any]:
    """All airports by their IATA or ICAO code."""
    import airportsdata

    return dict(airportsdata.load(code))


def _find(code: str, system: Literal["IATA", "ICAO"]) -> dict[str, Any]:
    found: dict[str, Any] | None = airports(system).get(code)
    if found is None:
        raise ToolError(f"no airport has the {system} code {code}")
    return found


def _told(found: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": found["name"],
        "city": found["city"],
        "country": found["country"],
        "lat": round(found["lat"], 4),
        "lon": round(found["lon"], 4),
    }


@tool(
    "travel",
    "Look up an airport by its IATA code: name, city, country and position.",
    takes={"code": "iata"},
    gives=AIRPORT,
    groups=("airport-code",),
    hard=(
        "what stands behind the three letters {code} on my luggage tag, and where on the map it is",
        "which place planes land at when the bag label says {code}",
    ),
)
def airport_by_iata(state: State, code: str) -> dict[str, Any]:
    return _told(_find(code, "IATA"))


@tool(
    "travel",
    "Look up an airport by its ICAO code: name, city, country and position.",
    takes={"code": "icao"},
    gives=AIRPORT,
    groups=("airport-code",),
    hard=(
        "what pilots mean by {code} in a flight plan, and where on the map it is",
        "which runway owner the tower people write down as {code}",
    ),
)
def airport_by_icao(state: State, code: str) -> dict[str, Any]:
    return _told(_find(code, "ICAO"))


@tool(
    "travel",
    "Find the airport closest to a position.",
    takes={"lat": "lat", "lon": "lon"},
    gives={"iata": "iata", "name": "text", "distance": "km"},
    hard=(
        "where I could board a plane without a long drive if I am at {lat} north and {lon} east",
        "from which terminal one would fly when living at {lat} north, {lon} east",
    ),
)
def nearest_airport(state: State, lat: float, lon: float) -> dict[str, Any]:
    best = min(
        (one for one in airports("IATA").values() if one["iata"]),
        key=lambda one: (haversine_km(lat, lon, one["lat"], one["lon"]), one["iata"]),
    )
    distance = haversine_km(lat, lon, best["lat"], best["lon"])
    return {"iata": best["iata"], "name": best["name"], "distance": round(distance, 1)}


@tool(
    "travel",
    "Count the airports with an IATA code in a country.",
    takes={"country": "country"},
    gives={"number": "count", "first": "iata"},
    hard=("how many places with scheduled planes {country} has", "how well {country} is covered by airlines' stops"),
)
def airports_in_country(state: State, country: str) -> dict[str, Any]:
    found = sorted(one["iata"] for one in airports("IATA").values() if one["country"] == country)
    if not found:
        raise ToolError(f"no airport in {country}")
    return {"number": len(found), "first": found[0]}


def _route(origin: str, destination: str) -> float:
    if origin == destination:
        raise ToolError("origin and destination are the same")
    a, b = _find(origin, "IATA"), _find(destination, "IATA")
    return haversine_km(a["lat"], a["lon"], b["lat"], b["lon"])


@tool(
    "travel",
    "Distance of the direct route between two airports, in kilometres.",
    takes={"origin": "iata", "destination": "iata"},
    gives={"distance": "km"},
    groups=("route",),
    hard=(
        "how far apart {origin} and {destination} are as the plane goes",
        "how many kilometres lie between {origin} and {destination} in the air",
    ),
)
def flight_distance(state: State, origin: str, destination: str) -> dict[str, Any]:
    return {"distance": round(_route(origin, destination), 1)}


@tool(
    "travel",
    "Time in the air on the direct route between two airports, in hours at 850 km/h.",
    takes={"origin": "iata", "destination": "iata"},
    gives={"hours": "number"},
    groups=("route",),
    hard=(
        "how long I will sit in a jet from {origin} until {destination}",
        "whether one can sleep a night through between {origin} and {destination}, going by a jet's usual pace",
    ),
)
def flight_duration(state: State, origin: str, destination: str) -> dict[str, Any]:
    return {"hours": round(_route(origin, destination) / 850, 2)}


@tool(
    "travel",
    "Elevation of an airport above the sea, in metres.",
    takes={"code": "iata"},
    gives={"metres": "metres"},
    groups=("airport-fact",),
    hard=("how high above the sea one lands at {code}", "how thin the air is at {code}, going by its height"),
)
def airport_elevation(state: State, code: str) -> dict[str, Any]:
    return {"metres": round(_find(code, "IATA")["elevation"] * FEET, 1)}


@tool(
    "travel",
    "Time zone of an airport.",
    takes={"code": "iata"},
    gives={"timezone": "timezone"},
    groups=("airport-fact",),
    hard=("to which clock I must set my watch when I land at {code}", "which clock people at {code} live by"),
)
def airport_timezone(state: State, code: str) -> dict[str, Any]:
    return {"timezone": _find(code, "IATA")["tz"]}
