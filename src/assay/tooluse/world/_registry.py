"""How a tool of the world is declared: parameters by kind, from which schemas, samples and edges follow."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from assay.tooluse.trajectories import Tool

__all__ = ["KINDS", "Declared", "Kind", "ToolError", "declared", "tool"]

State: TypeAlias = dict[str, Any]
Implementation: TypeAlias = Callable[..., dict[str, Any]]


class ToolError(Exception):
    """The tool can't answer: its message is the result's ``error``."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a value is: its schema, a description, and some values of it.

    Attributes
    ----------
    schema : mapping
        JSON Schema.
    words : str
        A description for parameters.
    samples : sequence
        Values that tasks use.
    binds : bool
        Whether a result of this kind may be another tool's argument of this kind.
    """

    schema: Mapping[str, Any]
    words: str
    samples: Sequence[Any] = ()
    binds: bool = True


def _text(words: str, *samples: str, binds: bool = True, **schema: Any) -> Kind:
    return Kind({"type": "string", **schema}, words, samples, binds)


def _words(text: str) -> list[str]:
    """The words of a text as samples."""
    return text.split()


def _number(words: str, *samples: float, binds: bool = True, **schema: Any) -> Kind:
    return Kind({"type": "number", **schema}, words, samples, binds)


def _whole(words: str, *samples: int, binds: bool = True, **schema: Any) -> Kind:
    return Kind({"type": "integer", **schema}, words, samples, binds)


CITIES = (
    "Zurich",
    "Lisbon",
    "Nairobi",
    "Osaka",
    "Toronto",
    "Lima",
    "Helsinki",
    "Cairo",
    "Mumbai",
    "Sydney",
    "Oslo",
    "Denver",
    "Madrid",
    "Seoul",
    "Bogota",
    "Vienna",
    "Dublin",
    "Athens",
    "Hanoi",
    "Jakarta",
    "Chicago",
    "Warsaw",
    "Prague",
    "Santiago",
    "Casablanca",
    "Auckland",
    "Istanbul",
    "Manila",
    "Havana",
    "Reykjavik",
)
DATES = tuple(f"{2008 + i % 16}-{1 + (5 * i) % 12:02d}-{1 + (7 * i) % 28:02d}" for i in range(40))

KINDS: dict[str, Kind] = {
    "iata": _text(
        "IATA code of three letters",
        *_words(
            "ZRH LIS NBO KIX YYZ LIM HEL CAI BOM SYD OSL DEN MAD ICN BOG VIE DUB ATH HAN CGK ORD "
            "WAW PRG SCL AKL IST MNL JFK LAX CDG"
        ),
        pattern="^[A-Z]{3}$",
    ),
    "icao": _text(
        "ICAO code of four letters",
        *_words(
            "LSZH LPPT HKJK RJBB CYYZ SPJC EFHK HECA VABB YSSY ENGM KDEN LEMD RKSI SKBO LOWW EIDW "
            "LGAV VVNB WIII KORD EPWA LKPR SCEL NZAA"
        ),
        pattern="^[A-Z]{4}$",
    ),
    "city": _text("name of a city", *CITIES),
    "country": _text(
        "ISO code of two letters",
        *_words("CH PT KE JP CA PE FI EG IN AU NO US ES KR CO AT IE GR VN ID PL CZ CL MA NZ TR PH IS BR ZA"),
        pattern="^[A-Z]{2}$",
    ),
    "country_name": _text(
        "English name",
        "Switzerland",
        "Portugal",
        "Kenya",
        "Japan",
        "Canada",
        "Peru",
        "Finland",
        "Egypt",
        "India",
        "Australia",
        "Norway",
        "Spain",
        "Austria",
        "Ireland",
        "Greece",
        "Poland",
    ),
    "currency": _text(
        "ISO code of three letters",
        *_words("EUR USD JPY GBP CHF SEK NOK DKK PLN CZK HUF AUD CAD NZD INR KRW ZAR SGD"),
        pattern="^[A-Z]{3}$",
    ),
    "lat": _number(
        "degrees north", 47.37, 38.72, -1.29, 34.69, 43.65, -12.05, 60.17, 30.04, 59.91, 40.42, minimum=-90, maximum=90
    ),
    "lon": _number(
        "degrees east", 8.54, -9.14, 36.82, 135.5, -79.38, -77.04, 24.94, 31.24, 10.75, -3.7, minimum=-180, maximum=180
    ),
    "timezone": _text(
        "name in the time zone database",
        "Europe/Zurich",
        "Asia/Tokyo",
        "America/Lima",
        "Africa/Cairo",
        "Australia/Sydney",
        "America/Toronto",
        "Asia/Kolkata",
        "Europe/Athens",
        "Pacific/Auckland",
    ),
    "date": _text("day as YYYY-MM-DD", *DATES, format="date", pattern=r"^\d{4}-\d{2}-\d{2}$"),
    "instant": _text(
        "UTC time as YYYY-MM-DDTHH:MM",
        *(f"{day}T{(3 * i) % 24:02d}:{(7 * i) % 60:02d}" for i, day in enumerate(DATES[:20])),
        pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}$",
        binds=False,
    ),
    "year": _whole("calendar year", 1998, 2003, 2008, 2011, 2016, 2019, 2024, minimum=1900, maximum=2100, binds=False),
    "days": _whole("a number of days", 9, 17, 33, 45, 71, 128, 250, minimum=-36500, maximum=36500),
    "months": _whole("a number of months", 2, 5, 8, 14, 19, 26, minimum=-1200, maximum=1200, binds=False),
    "years": _whole("a number of years", 3, 6, 12, 15, 21, 28, minimum=1, maximum=100, binds=False),
    "amount": _number("an amount of money", 120, 275.5, 480, 999, 1250, 3600, 84.2, 15000, minimum=0),
    "percent": _number("per cent", 1.5, 2.25, 3.8, 4.75, 6.1, 7.4, binds=False),
    "km": _number("kilometres", 42.2, 118, 305.5, 640, 1510, 7420, minimum=0),
    "metres": _number("metres", 310, 1250, 2430, 4807),
    "planet": _text(
        "name of a planet",
        "Mercury",
        "Venus",
        "Mars",
        "Jupiter",
        "Saturn",
        "Uranus",
        "Neptune",
        enum=["Mercury", "Venus", "Mars", "Jupiter", "Saturn", "Uranus", "Neptune"],
        binds=False,
    ),
    "formula": _text(
        "chemical formula", "H2O", "C6H12O6", "NaCl", "CaCO3", "C2H5OH", "Fe2O3", "H2SO4", "NH3", "C8H10N4O2"
    ),
    "symbol": _text("chemical symbol", *_words("Fe Cu Au Ag Na Cl O N C Si Al Hg Pb Zn"), pattern="^[A-Z][a-z]?$"),
    "atomic_number": _whole("protons of the nucleus", 6, 11, 17, 26, 29, 47, 79, 82, minimum=1, maximum=118),
    "grams": _number("grams", 2.5, 18, 75, 250, 640, exclusiveMinimum=0),
    "moles": _number("moles", 0.25, 1.5, 3, 4.75, 9, exclusiveMinimum=0),
    "phone": _text(
        "number with country prefix",
        "+41446681800",
        "+4930901820",
        "+14155552671",
        "+33142685300",
        "+442083661177",
        "+390236618300",
        "+81332107401",
        "+61236618300",
        pattern=r"^\+\d{6,15}$",
    ),
    "zip": _text(
        "US postal code of five digits",
        "94103",
        "10001",
        "60601",
        "02139",
        "98101",
        "80202",
        "33101",
        "73301",
        "30301",
        pattern=r"^\d{5}$",
    ),
    "state": _text("US state of two letters", "CA", "NY", "IL", "MA", "WA", "CO", pattern="^[A-Z]{2}$"),
    "us_city": _text("US city", "Denver", "Seattle", "Boston", "Chicago", "Oakland", binds=False),
    "subdivision": _text(
        "ISO 3166-2 code", "CH-ZH", "US-CA", "DE-BY", "FR-75C", "IN-MH", "BR-SP", "CA-ON", binds=False
    ),
    "isbn10": _text(
        "ten digits of a book number",
        "0306406152",
        "0262033844",
        "0131103628",
        "0201896834",
        "0596009208",
        pattern=r"^\d{9}[\dX]$",
    ),
    "isbn13": _text(
        "thirteen digits of a book number",
        "9780306406157",
        "9780262033848",
        "9780131103627",
        "9780201896831",
        "9783161484100",
        pattern=r"^\d{13}$",
    ),
    "language2": _text("ISO 639 code of two letters", *_words("de fr ja sw fi pl tr vi el cs"), pattern="^[a-z]{2}$"),
    "language3": _text(
        "ISO 639 code of three letters", *_words("deu fra jpn swa fin pol tur vie"), pattern="^[a-z]{3}$"
    ),
    "language_name": _text(
        "English name", "German", "French", "Japanese", "Finnish", "Polish", "Turkish", "Vietnamese"
    ),
    "roman": _text("Roman numeral", "XIV", "MCMXCIX", "CDXLIV", "LXXVIII", "MMXXIV", pattern="^[MDCLXVI]+$"),
    "integer": _whole("a whole number", 14, 36, 84, 97, 120, 221, 391, 504, 997, 1001, minimum=1, maximum=10**9),
    "fen": _text(
        "chess position in FEN",
        "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1",
        "r1bqkbnr/pppp1ppp/2n5/4p3/4P3/5N2/PPPP1PPP/RNBQKB1R w KQkq - 2 3",
        "rnbqkbnr/ppp1pppp/8/3p4/3P4/8/PPP1PPPP/RNBQKBNR w KQkq - 0 2",
        "rnbqkbnr/pppp1ppp/8/4p3/4P3/8/PPPP1PPP/RNBQKBNR w KQkq - 0 2",
        "rnbqkb1r/pppppppp/5n2/8/3P4/8/PPP1PPPP/RNBQKBNR w KQkq - 1 2",
    ),
    "move": _text(
        "move in UCI notation", "g1f3", "b1c3", "h2h3", "a2a3", pattern=r"^[a-h][1-8][a-h][1-8][qrbn]?$", binds=False
    ),
    "square": _text("square of the board", "a1", "e4", "h8", "c6", "d5", pattern="^[a-h][1-8]$", binds=False),
    "dice": _whole("how many dice", 2, 3, 4, 5, minimum=1, maximum=20, binds=False),
    "sides": _whole("sides of each", 6, 8, 10, 12, 20, minimum=2, maximum=100, binds=False),
    "total": _whole("sum of the eyes", 7, 9, 11, 13, minimum=1, maximum=2000, binds=False),
    "rating": _number("Elo rating", 1480, 1655, 1820, 2010, 2390, minimum=0, binds=False),
    "numbers": Kind(
        {"type": "array", "items": {"type": "number"}, "minItems": 2},
        "a list of numbers",
        ([3, 8, 15, 22], [1.5, 2.5, 9], [12, 7, 31, 4, 18], [100, 250, 175]),
        False,
    ),
    "phrase": _text(
        "a text",
        "the quick brown fox",
        "no time like the present",
        "all that glitters is not gold",
        "still waters run deep",
        binds=False,
    ),
    "degrees": _number("degrees Celsius", -12, 4.5, 21, 36.6, 100, binds=False),
    "address": _text("mail address", "ana@example.org", "bo@example.com", "chen@example.net", binds=False),
    "subject": _text("subject line", "Agenda", "Invoice 17", "Lunch", "Minutes", binds=False),
    "body": _text("the mail's text", "See you soon.", "Please confirm.", "All done.", binds=False),
    "title": _text("what the event is", "Dentist", "Review", "Choir", "Workshop", binds=False),
    "clock": _text("time of day as HH:MM", "09:30", "13:15", "17:45", "08:00", pattern=r"^\d{2}:\d{2}$", binds=False),
    "minutes": _whole("length in minutes", 25, 45, 90, minimum=1, maximum=1440, binds=False),
    "sku": _text("article", "pen", "ink", "pad", "lamp", enum=["pen", "ink", "pad", "lamp", "desk"], binds=False),
    "quantity": _whole("how many", 2, 4, 7, 11, minimum=1, maximum=1000, binds=False),
    "mail_id": _text("id of a mail", binds=True, pattern=r"^m\d+$"),
    "event_id": _text("id of an event", binds=True, pattern=r"^e\d+$"),
    "text": Kind({"type": "string"}, "text", (), False),
    "number": Kind({"type": "number"}, "number", (), False),
    "count": Kind({"type": "integer"}, "number of things", (), False),
    "boolean": Kind({"type": "boolean"}, "whether it is so", (), False),
    "texts": Kind({"type": "array", "items": {"type": "string"}}, "list of texts", (), False),
}


@dataclass(frozen=True, slots=True)
class Declared:
    """A tool of the world.

    Attributes
    ----------
    tool : Tool
        What a model is told.
    run : callable
        ``run(state, **arguments)``.
    takes, gives : dict of str to str
        Kinds of parameters and of the result's fields.
    hard : tuple of str
        What one says when one wants it without naming it, with a place for each parameter.
    stateful : bool
        Whether it changes the world.
    """

    tool: Tool
    run: Implementation
    takes: Mapping[str, str]
    gives: Mapping[str, str]
    hard: tuple[str, ...]
    stateful: bool = False


_DECLARED: dict[str, Declared] = {}


def tool(
    domain: str,
    description: str,
    *,
    takes: Mapping[str, str],
    gives: Mapping[str, str],
    hard: tuple[str, ...],
    groups: tuple[str, ...] = (),
    defaults: Mapping[str, Any] | None = None,
    stateful: bool = False,
) -> Callable[[Implementation], Implementation]:
    """Declare the decorated function as a tool under its own name."""

    def declare(function: Implementation) -> Implementation:
        name = function.__name__
        properties: dict[str, Any] = {}
        for parameter, kind in takes.items():
            properties[parameter] = {**KINDS[kind].schema, "description": KINDS[kind].words}
            if defaults and parameter in defaults:
                properties[parameter]["default"] = defaults[parameter]
        required = [parameter for parameter in takes if parameter not in (defaults or {})]
        parameters = {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }
        returns = {
            "type": "object",
            "properties": {field: dict(KINDS[kind].schema) for field, kind in gives.items()},
            "required": list(gives),
            "additionalProperties": False,
        }
        made = Tool(name, description, parameters, returns, domain, domain, groups)
        _DECLARED[name] = Declared(made, function, takes, gives, hard, stateful)
        return function

    return declare


def declared() -> Mapping[str, Declared]:
    """All tools of the world by name, in the order of the domains."""
    from assay.tooluse.world import (  # noqa: F401
        astronomy,
        chemistry,
        finance,
        games,
        library,
        mapping,
        numbers,
        office,
        post,
        time,
        travel,
    )

    return _DECLARED


STOPWORDS = frozenset({"a", "an", "at", "by", "for", "from", "in", "is", "of", "on", "the", "to", "with", "and", "as"})


def content_words(name: str) -> frozenset[str]:
    """The words of a name that carry meaning."""
    return frozenset(word for word in re.split(r"[^a-z0-9]+", name.lower()) if len(word) > 1 and word not in STOPWORDS)


def bindings(producer: Declared, consumer: Declared) -> Iterator[tuple[str, str]]:
    """Which of the producer's fields can be which of the consumer's arguments; each argument once."""
    free = dict(producer.gives)
    for parameter, kind in consumer.takes.items():
        if not KINDS[kind].binds:
            continue
        field_name = next((name for name, given in free.items() if given == kind), None)
        if field_name is not None:
            del free[field_name]
            yield field_name, parameter
