"""Elements and formulas, from the data of ``periodictable``."""

from __future__ import annotations

from typing import Any

from assay.tooluse.world._registry import State, ToolError, tool


def parse_formula(text: str) -> Any:
    """A chemical formula."""
    import periodictable

    try:
        found = periodictable.formula(text)
    except Exception as error:
        raise ToolError(f"{text} is not a chemical formula") from error
    if not found.atoms:
        raise ToolError("an empty formula")
    return found


def find_element(symbol: str) -> Any:
    """An element by its symbol."""
    import periodictable

    try:
        return periodictable.elements.symbol(symbol)
    except ValueError as error:
        raise ToolError(f"no element has the symbol {symbol}") from error


@tool(
    "chemistry",
    "Molar mass of a compound, in grams per mole.",
    takes={"formula": "formula"},
    gives={"value": "number"},
    groups=("formula-fact",),
    hard=("how heavy Avogadro's number of {formula} particles is", "what 6.022e23 particles of {formula} weigh"),
)
def molar_mass(state: State, formula: str) -> dict[str, Any]:
    return {"value": round(float(parse_formula(formula).mass), 4)}


@tool(
    "chemistry",
    "Number of atoms in a formula unit.",
    takes={"formula": "formula"},
    gives={"number": "count"},
    groups=("formula-fact",),
    hard=(
        "how many balls a ball-and-stick model of {formula} takes",
        "out of how many nuclei one unit of {formula} is built",
    ),
)
def atom_count(state: State, formula: str) -> dict[str, Any]:
    return {"number": int(sum(parse_formula(formula).atoms.values()))}


@tool(
    "chemistry",
    "Mass of an amount of a compound, in grams.",
    takes={"formula": "formula", "moles": "moles"},
    gives={"grams": "grams"},
    groups=("amount",),
    hard=("what I must weigh in to have {moles} mol of {formula}", "what the scale shows for {moles} mol of {formula}"),
)
def mass_of_moles(state: State, formula: str, moles: float) -> dict[str, Any]:
    return {"grams": round(float(parse_formula(formula).mass) * moles, 4)}


@tool(
    "chemistry",
    "Amount of a compound in a mass, in moles.",
    takes={"formula": "formula", "grams": "grams"},
    gives={"moles": "moles"},
    groups=("amount",),
    hard=(
        "how many times Avogadro's number of {formula} particles a jar of {grams} g holds",
        "what {grams} g of {formula} are in units of 6.022e23 particles",
    ),
)
def moles_of_mass(state: State, formula: str, grams: float) -> dict[str, Any]:
    return {"moles": round(grams / float(parse_formula(formula).mass), 6)}


@tool(
    "chemistry",
    "Chemical element by its symbol: name and atomic number.",
    takes={"symbol": "symbol"},
    gives={"name": "text", "number": "atomic_number"},
    groups=("element", "element-fact"),
    hard=("what stuff {symbol} stands for on a lab jar", "which square of Mendeleev's chart carries {symbol}"),
)
def element_by_symbol(state: State, symbol: str) -> dict[str, Any]:
    found = find_element(symbol)
    return {"name": str(found.name), "number": int(found.number)}


@tool(
    "chemistry",
    "Chemical element by its atomic number: name and symbol.",
    takes={"number": "atomic_number"},
    gives={"name": "text", "symbol": "symbol"},
    groups=("element",),
    hard=("what stuff has {number} protons per nucleus", "which square comes at place {number} of Mendeleev's chart"),
)
def element_by_number(state: State, number: int) -> dict[str, Any]:
    import periodictable

    found = periodictable.elements[number]
    return {"name": str(found.name), "symbol": str(found.symbol)}


@tool(
    "chemistry",
    "Density of a chemical element, in grams per cubic centimetre.",
    takes={"symbol": "symbol"},
    gives={"value": "number"},
    groups=("element-fact",),
    hard=(
        "what a thimble full of {symbol} weighs",
        "whether {symbol} would float on water, by its weight a millilitre",
    ),
)
def element_density(state: State, symbol: str) -> dict[str, Any]:
    value = find_element(symbol).density
    if value is None:
        raise ToolError(f"the density of {symbol} is unknown")
    return {"value": round(float(value), 6)}


@tool(
    "chemistry",
    "Share of an element in a compound by mass, in per cent.",
    takes={"formula": "formula", "symbol": "symbol"},
    gives={"percent": "number"},
    hard=(
        "how many hundredths of the weight of {formula} come from {symbol}",
        "to what part {formula} is {symbol} by weight",
    ),
)
def mass_fraction(state: State, formula: str, symbol: str) -> dict[str, Any]:
    found = parse_formula(formula)
    share = found.mass_fraction.get(find_element(symbol), 0.0)
    return {"percent": round(100 * float(share), 4)}
