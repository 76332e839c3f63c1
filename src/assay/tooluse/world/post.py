"""Telephone numbers, postal codes and subdivisions: ``phonenumbers``, ``zipcodes`` and ``pycountry``."""

from __future__ import annotations

from typing import Any

from assay.tooluse.world._registry import State, ToolError, tool


def _phone(number: str) -> Any:
    import phonenumbers

    try:
        return phonenumbers.parse(number)
    except phonenumbers.NumberParseException as error:
        raise ToolError(f"{number} is not a telephone number") from error


@tool(
    "post",
    "Country to which a telephone number belongs.",
    takes={"phone": "phone"},
    gives={"country": "country"},
    groups=("phone-fact",),
    hard=("from which nation {phone} is ringing me", "in whose land the line {phone} ends"),
)
def phone_region(state: State, phone: str) -> dict[str, Any]:
    import phonenumbers

    found = phonenumbers.region_code_for_number(_phone(phone))
    if found is None or len(found) != 2 or not found.isalpha():
        raise ToolError(f"{phone} belongs to no country")
    return {"country": found}


@tool(
    "post",
    "Whether a telephone number is valid.",
    takes={"phone": "phone"},
    gives={"valid": "boolean"},
    groups=("phone-fact",),
    hard=("if {phone} can be rung at all", "whether I mistyped {phone} or it makes sense"),
)
def phone_validity(state: State, phone: str) -> dict[str, Any]:
    import phonenumbers

    return {"valid": bool(phonenumbers.is_valid_number(_phone(phone)))}


@tool(
    "post",
    "Telephone number as written within its country.",
    takes={"phone": "phone"},
    gives={"value": "text"},
    groups=("phone-format",),
    hard=("how locals at home would jot down {phone}", "how {phone} looks on a shop sign in its own land"),
)
def national_format(state: State, phone: str) -> dict[str, Any]:
    import phonenumbers

    return {"value": phonenumbers.format_number(_phone(phone), phonenumbers.PhoneNumberFormat.NATIONAL)}


@tool(
    "post",
    "Telephone number as written for callers from abroad.",
    takes={"phone": "phone"},
    gives={"value": "text"},
    groups=("phone-format",),
    hard=(
        "how {phone} should stand on a card for foreign guests",
        "how one prints {phone} so that the whole world can ring",
    ),
)
def international_format(state: State, phone: str) -> dict[str, Any]:
    import phonenumbers

    return {"value": phonenumbers.format_number(_phone(phone), phonenumbers.PhoneNumberFormat.INTERNATIONAL)}


@tool(
    "post",
    "Dialling code of a country.",
    takes={"country": "country"},
    gives={"value": "count"},
    hard=(
        "what to key in first when ringing a friend in {country}",
        "with which digits numbers from {country} begin abroad",
    ),
)
def dialling_code(state: State, country: str) -> dict[str, Any]:
    import phonenumbers

    found = phonenumbers.country_code_for_region(country)
    if not found:
        raise ToolError(f"no dialling code for {country}")
    return {"value": int(found)}


def _zip(code: str) -> dict[str, Any]:
    import zipcodes

    found = zipcodes.matching(code)
    if not found:
        raise ToolError(f"no place has the postal code {code}")
    return dict(found[0])


@tool(
    "post",
    "City, state and position of a US postal code.",
    takes={"code": "zip"},
    gives={"city": "text", "state": "state", "lat": "lat", "lon": "lon"},
    groups=("zip",),
    hard=("where in America a letter marked {code} ends up", "to which American town {code} on an envelope leads"),
)
def zip_place(state: State, code: str) -> dict[str, Any]:
    found = _zip(code)
    return {"city": found["city"], "state": found["state"], "lat": float(found["lat"]), "lon": float(found["long"])}


@tool(
    "post",
    "Time zone of a US postal code.",
    takes={"code": "zip"},
    gives={"timezone": "timezone"},
    groups=("zip",),
    hard=(
        "by which clock an American lives whose envelope says {code}",
        "when I may ring somebody in America at {code}, by the local clock",
    ),
)
def zip_timezone(state: State, code: str) -> dict[str, Any]:
    return {"timezone": _zip(code)["timezone"]}


@tool(
    "post",
    "Number of postal codes of a US city.",
    takes={"city": "us_city", "region": "state"},
    gives={"number": "count", "first": "zip"},
    hard=(
        "how many different envelopes' endings reach {city}, {region}",
        "over how many mail routes {city}, {region} is split",
    ),
)
def zips_in_city(state: State, city: str, region: str) -> dict[str, Any]:
    import zipcodes

    found = sorted(one["zip_code"] for one in zipcodes.filter_by(city=city, state=region))
    if not found:
        raise ToolError(f"no postal code in {city}, {region}")
    return {"number": len(found), "first": found[0]}


@tool(
    "post",
    "Name and type of a country's subdivision by its ISO code.",
    takes={"code": "subdivision"},
    gives={"name": "text", "type": "text"},
    hard=("what region is meant by {code}", "which canton, state or province {code} stands for"),
)
def subdivision_name(state: State, code: str) -> dict[str, Any]:
    import pycountry

    found = pycountry.subdivisions.get(code=code)
    if found is None:
        raise ToolError(f"no subdivision has the code {code}")
    return {"name": found.name, "type": found.type}
