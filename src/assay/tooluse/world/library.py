"""Book numbers, languages and Roman numerals: ``isbnlib`` and ``pycountry``."""

from __future__ import annotations

from typing import Any

from assay.tooluse.world._registry import State, ToolError, tool

ROMAN = (
    (1000, "M"),
    (900, "CM"),
    (500, "D"),
    (400, "CD"),
    (100, "C"),
    (90, "XC"),
    (50, "L"),
    (40, "XL"),
    (10, "X"),
    (9, "IX"),
    (5, "V"),
    (4, "IV"),
    (1, "I"),
)
LARGEST_ROMAN = 3999


@tool(
    "library",
    "Convert an ISBN of ten digits to thirteen digits.",
    takes={"isbn": "isbn10"},
    gives={"result": "isbn13"},
    groups=("isbn-convert",),
    hard=(
        "how the old book number {isbn} reads in the long modern form",
        "the barcode under which shops sell the volume once numbered {isbn}",
    ),
)
def isbn10_to_isbn13(state: State, isbn: str) -> dict[str, Any]:
    import isbnlib

    found = isbnlib.to_isbn13(isbn)
    if not found:
        raise ToolError(f"{isbn} is not an ISBN")
    return {"result": found}


@tool(
    "library",
    "Convert an ISBN of thirteen digits to ten digits.",
    takes={"isbn": "isbn13"},
    gives={"result": "isbn10"},
    groups=("isbn-convert",),
    hard=(
        "how the barcode {isbn} read on the cover back in the nineties",
        "the short old-style number of the volume with barcode {isbn}",
    ),
)
def isbn13_to_isbn10(state: State, isbn: str) -> dict[str, Any]:
    import isbnlib

    found = isbnlib.to_isbn10(isbn)
    if not found:
        raise ToolError(f"{isbn} is no ISBN that has ten digits")
    return {"result": found}


@tool(
    "library",
    "Whether the check digit of an ISBN is right.",
    takes={"isbn": "isbn13"},
    gives={"valid": "boolean"},
    groups=("isbn-fact",),
    hard=(
        "if the cashier mistyped the barcode {isbn} of a book",
        "whether the barcode {isbn} on a cover can be trusted",
    ),
)
def isbn_validity(state: State, isbn: str) -> dict[str, Any]:
    import isbnlib

    return {"valid": bool(isbnlib.is_isbn13(isbn))}


@tool(
    "library",
    "Language area or country in which an ISBN was registered.",
    takes={"isbn": "isbn13"},
    gives={"area": "text"},
    groups=("isbn-fact",),
    hard=(
        "in whose tongue the volume with barcode {isbn} likely is",
        "where in the world barcode {isbn} was handed out to a publisher",
    ),
)
def isbn_origin(state: State, isbn: str) -> dict[str, Any]:
    import isbnlib

    found = isbnlib.info(isbn)
    if not found:
        raise ToolError(f"{isbn} is not an ISBN")
    return {"area": str(found)}


def _language(**key: str) -> Any:
    import pycountry

    found = pycountry.languages.get(**key)
    if found is None:
        raise ToolError(f"no language has the code {next(iter(key.values()))}")
    return found


@tool(
    "library",
    "Language by its ISO 639 code of two letters.",
    takes={"code": "language2"},
    gives={"name": "language_name", "long": "language3"},
    groups=("language",),
    hard=("what tongue a web page marked {code} is in", "how people speak where keyboards switch to {code}"),
)
def language_by_alpha2(state: State, code: str) -> dict[str, Any]:
    found = _language(alpha_2=code)
    return {"name": found.name, "long": found.alpha_3}


@tool(
    "library",
    "Language by its ISO 639 code of three letters.",
    takes={"code": "language3"},
    gives={"name": "language_name"},
    groups=("language",),
    hard=("what tongue a film track marked {code} is in", "what one hears on a disc whose track is tagged {code}"),
)
def language_by_alpha3(state: State, code: str) -> dict[str, Any]:
    return {"name": _language(alpha_3=code).name}


@tool(
    "library",
    "ISO 639 codes of a language by its English name.",
    takes={"name": "language_name"},
    gives={"short": "text", "long": "language3"},
    groups=("language",),
    hard=("which letters a web page in {name} must be marked with", "how a catalogue abbreviates {name}"),
)
def language_by_name(state: State, name: str) -> dict[str, Any]:
    found = _language(name=name)
    return {"short": getattr(found, "alpha_2", ""), "long": found.alpha_3}


@tool(
    "library",
    "Roman numeral of a number from 1 to 3999.",
    takes={"number": "integer"},
    gives={"value": "roman"},
    groups=("roman",),
    hard=("how a stonemason would carve {number}", "how Caesar's clerk wrote down {number}"),
)
def number_to_roman(state: State, number: int) -> dict[str, Any]:
    if number > LARGEST_ROMAN:
        raise ToolError(f"{number} is larger than {LARGEST_ROMAN}")
    text = ""
    for value, letters in ROMAN:
        count, number = divmod(number, value)
        text += letters * count
    return {"value": text}


@tool(
    "library",
    "Number that a Roman numeral stands for.",
    takes={"numeral": "roman"},
    gives={"value": "integer"},
    groups=("roman",),
    hard=("how much {numeral} on an old tomb is", "what {numeral} over a church door means in today's digits"),
)
def roman_to_number(state: State, numeral: str) -> dict[str, Any]:
    total, rest = 0, numeral
    for value, letters in ROMAN:
        while rest.startswith(letters):
            total, rest = total + value, rest[len(letters) :]
    if rest or total > LARGEST_ROMAN or number_to_roman(state, total)["value"] != numeral:
        raise ToolError(f"{numeral} is not a Roman numeral")
    return {"value": total}
