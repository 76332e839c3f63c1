"""The offline world: tools against their packages, schemas, state, confusions, and tasks made of it."""

from __future__ import annotations

import math
import random
import re
import socket
import statistics
import warnings
from datetime import date
from typing import Any

import pytest

from assay.core.errors import InputError
from assay.tooluse.scoring import score
from assay.tooluse.tasks import BOUND_HARD, make_tasks, paraphrases, recover, sentences
from assay.tooluse.world import ToolWorld
from assay.tooluse.world._registry import KINDS, content_words
from assay.tooluse.world.mapping import geodesic_m

WORLD = ToolWorld.load()


def call(name: str, **args: Any) -> dict[str, Any]:
    return WORLD.call(name, args)


def test_there_are_enough_tools_domains_and_confusions() -> None:
    pairs = [pair for names in WORLD.groups().values() for pair in [(a, b) for a in names for b in names if a < b]]
    assert len(WORLD.tools()) >= 72
    assert len({tool.domain for tool in WORLD.tools()}) >= 10
    assert len(pairs) >= 14
    assert len(WORLD.edges()) > 100


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        (
            "convert_on_date",
            {"amount": 100, "source": "EUR", "target": "USD", "date": "2020-01-02"},
            {"amount": 111.93},
        ),
        ("molar_mass", {"formula": "C6H12O6"}, {"value": 180.156}),
        ("airport_by_iata", {"code": "ZRH"}, {"name": "Zurich Airport"}),
        ("airport_timezone", {"code": "JFK"}, {"timezone": "America/New_York"}),
        ("country_capital", {"code": "PE"}, {"city": "Lima"}),
        ("weekday_of", {"date": "2024-02-29"}, {"value": "Thursday"}),
        ("days_between", {"start": "2024-01-01", "end": "2025-01-01"}, {"days": 366}),
        ("working_days_between", {"start": "2024-01-01", "end": "2024-01-08"}, {"days": 5}),
        ("add_months", {"date": "2024-01-31", "months": 1}, {"result": "2024-02-29"}),
        ("holiday_on", {"country": "US", "date": "2024-07-04"}, {"free": True, "name": "Independence Day"}),
        ("isbn10_to_isbn13", {"isbn": "0306406152"}, {"result": "9780306406157"}),
        ("isbn13_to_isbn10", {"isbn": "9780306406157"}, {"result": "0306406152"}),
        ("number_to_roman", {"number": 1999}, {"value": "MCMXCIX"}),
        ("roman_to_number", {"numeral": "CDXLIV"}, {"value": 444}),
        ("dice_probability", {"dice": 2, "sides": 6, "total": 7}, {"value": round(1 / 6, 8)}),
        ("chess_moves", {"fen": KINDS["fen"].samples[0]}, {"number": 20}),
        ("chess_material", {"fen": KINDS["fen"].samples[0]}, {"white": 39, "black": 39}),
        ("to_fahrenheit", {"celsius": 100}, {"value": 212.0}),
        ("prime_factors", {"number": 84}, {"value": "2 x 2 x 3 x 7"}),
        ("mean_of", {"numbers": [1, 2, 6]}, {"value": 3.0}),
        ("language_by_alpha3", {"code": "swa"}, {"name": "Swahili (macrolanguage)"}),
        ("dialling_code", {"country": "CH"}, {"value": 41}),
        ("zip_place", {"code": "02139"}, {"city": "Cambridge", "state": "MA"}),
        ("next_full_moon", {"date": "2024-01-01"}, {"day": "2024-01-25"}),
        ("next_solstice", {"date": "2024-05-01"}, {"day": "2024-06-20"}),
        ("square_colour", {"square": "a1"}, {"colour": "dark"}),
        ("elo_expectation", {"rating": 1500, "opponent": 1500}, {"value": 0.5}),
        ("loan_payment", {"principal": 1200, "rate": 0, "years": 1}, {"amount": 100.0}),
        ("cart_total", {}, {"price": 0.0}),
    ],
)
def test_known_results(name: str, args: dict[str, Any], expected: dict[str, Any]) -> None:
    assert expected.items() <= call(name, **args).items()


def test_results_are_those_of_the_packages_themselves() -> None:
    import airportsdata
    import ephem
    import holidays
    import phonenumbers
    import pint
    from currency_converter import CurrencyConverter
    from timezonefinder import TimezoneFinder

    airport = airportsdata.load("ICAO")["LSZH"]
    assert call("airport_by_icao", code="LSZH")["lat"] == round(airport["lat"], 4)
    assert call("planet_distance", planet="Mars", date="2020-10-06")["au"] == pytest.approx(
        float(ephem.Mars("2020/10/6").earth_distance), abs=1e-5
    )
    assert call("holidays_in_year", country="CH", year=2024)["number"] == len(
        holidays.country_holidays("CH", years=2024)
    )
    assert call("international_format", phone="+41446681800")["value"] == "+41 44 668 18 00"
    assert call("phone_region", phone="+819012345678")["country"] == phonenumbers.region_code_for_number(
        phonenumbers.parse("+819012345678")
    )
    assert call("kilometres_to_miles", km=42.2)["value"] == pytest.approx(
        pint.UnitRegistry().Quantity(42.2, "km").to("mile").magnitude, abs=1e-4
    )
    rate = CurrencyConverter().convert(1, "CHF", "SEK", date=date(2015, 4, 22))
    assert call("rate_on_date", source="CHF", target="SEK", date="2015-04-22")["value"] == pytest.approx(rate, abs=1e-6)
    assert call("timezone_at", lat=-33.86, lon=151.2)["timezone"] == TimezoneFinder().timezone_at(lat=-33.86, lng=151.2)
    assert call("deviation_of", numbers=[3, 8, 15])["value"] == pytest.approx(statistics.stdev([3, 8, 15]), abs=1e-6)


def test_the_geodesic_is_vincentys_own_example() -> None:
    """Flinders Peak to Buninyong: 54 972.271 m on GRS 80, which differs from WGS 84 by less than a millimetre here."""
    start = -(37 + 57 / 60 + 3.72030 / 3600), 144 + 25 / 60 + 29.52440 / 3600
    end = -(37 + 39 / 60 + 10.15610 / 3600), 143 + 55 / 60 + 35.38390 / 3600
    assert geodesic_m(*start, *end) == pytest.approx(54_972.271, abs=1e-3)


@pytest.mark.parametrize("name", list(WORLD.declarations))
def test_every_tool_keeps_to_its_schemas_and_has_an_error_path(name: str) -> None:
    rng = random.Random(name)
    one = WORLD.declarations[name]
    world = ToolWorld.load()
    for _ in range(4):
        args = {p: rng.choice(KINDS[k].samples or ["m1" if k == "mail_id" else "e1"]) for p, k in one.takes.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = world.call(name, args)
        assert world.violations(name, result) == []
        assert world.call(name, args) == result or one.stateful
    assert "error" in world.call(name, {"no such parameter": 1})
    if one.takes:
        assert "error" in world.call(name, {})


def test_violations_of_a_wrong_result_are_named() -> None:
    assert WORLD.violations("weekday_of", {"value": 5}) == ["5 is not of type 'string'"]


def test_nothing_leaves_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **more: Any) -> None:
        raise AssertionError("a tool opened a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    for task in make_tasks(6, "parallel", "simple", per_n=10, seed=5):
        assert all("error" not in one.result for one in task.calls)


def test_a_snapshot_is_restored_exactly() -> None:
    world = ToolWorld.load()
    world.call("send_mail", {"address": "a@b.c", "subject": "s", "body": "b"})
    kept = world.snapshot()
    world.call("send_mail", {"address": "a@b.c", "subject": "t", "body": "b"})
    world.call("cart_add", {"article": "pen", "quantity": 2})
    world.call("delete_mail", {"id": "m1"})
    assert world.state != kept
    world.restore(kept)
    assert world.state == kept
    assert world.call("read_mail", {"id": "m1"}) == {"subject": "s", "body": "b"}
    assert world.call("send_mail", {"address": "a@b.c", "subject": "t", "body": "b"}) == {"id": "m2"}
    assert kept["next"]["mail"] == 2


@pytest.mark.parametrize("form", ["openai", "anthropic", "mcp"])
def test_definitions_are_valid_schemas(form: Any) -> None:
    from jsonschema import Draft202012Validator

    for one in WORLD.tools(form):
        schema = one.get("inputSchema") or one.get("input_schema") or one["function"]["parameters"]
        Draft202012Validator.check_schema(schema)


def test_unknown_worlds_tools_and_forms_are_refused() -> None:
    with pytest.raises(InputError, match="world 'online'; expected offline"):
        ToolWorld.load("online")
    assert call("no_such_tool") == {"error": "no tool is called no_such_tool"}
    with pytest.raises(InputError, match="format is 'xml'"):
        WORLD.tools("xml")  # type: ignore[arg-type]


# --- Tasks


@pytest.mark.parametrize("name", list(WORLD.declarations))
def test_hidden_words_avoid_the_tools_name_and_keep_every_value(name: str) -> None:
    one = WORLD.declarations[name]
    assert len(set(paraphrases(one))) >= 6
    forbidden = content_words(name) | {p for p in one.takes if len(p) > 1}
    values = {p: f"v{place}" for place, p in enumerate(one.takes)}
    for text in paraphrases(one):
        bare = re.sub(r"\{\w+\}", "", text)
        assert not forbidden & set(re.findall(r"[a-z0-9]+", bare.lower()))
        assert recover(text.format(**values), one) == values


@pytest.mark.parametrize("structure", ["parallel", "sequential", "dag"])
def test_a_perfect_run_has_no_flaw_and_every_value_can_be_read_from_the_query(structure: Any) -> None:
    """Oracle 1 on generated tasks."""
    tasks = make_tasks((3, 5, 8), structure, per_n=6, seed=11, world=WORLD)
    assert len(tasks) == 36
    ones = ("name_em", "name_f1", "call_em", "call_f1", "args_accuracy", "arg_f1", "lcs_ratio", "satisfaction")
    for task in tasks:
        found = score(task.as_trajectory(), task, tools=WORLD.tools())
        assert found.labels == ()
        assert all(found[metric] == 1 for metric in ones)
        assert all(found[m] == 1 or math.isnan(found[m]) for m in ("order_accuracy", "dependency_satisfaction"))
        assert found["unsupported_rate"] == 0
        if task.difficulty == "hard":
            declared = [WORLD.declarations[call.name] for call in task.calls]
            for one, (_, values) in zip(task.calls, sentences(task.query, declared), strict=True):
                for parameter, text in values.items():
                    value = one.args[parameter]
                    shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
                    assert text in (shown, BOUND_HARD)


def test_twins_share_their_reference_and_sequential_steps_depend_on_the_one_before() -> None:
    simple, hard = make_tasks(6, "sequential", per_n=1, seed=3)
    assert (simple.calls, simple.edges, simple.twin_id) == (hard.calls, hard.edges, hard.twin_id)
    assert {(edge.consumer - edge.producer) for edge in simple.edges} == {1}
    assert {edge.consumer for edge in simple.edges} == set(range(1, 6))
    for edge in simple.edges:
        field = edge.path.removeprefix("$.")
        assert simple.calls[edge.producer].result[field] == simple.calls[edge.consumer].args[edge.parameter]


def test_a_dag_joins_two_chains() -> None:
    task = make_tasks(6, "dag", "hard", per_n=1, seed=3)[0]
    into_last = {edge.producer for edge in task.edges if edge.consumer == 5}
    assert len(into_last) == 2


def test_the_same_seed_makes_the_same_tasks_and_parallel_tools_differ() -> None:
    one, two, other = (make_tasks(5, per_n=3, seed=seed) for seed in (7, 7, 8))
    assert one == two != other
    assert all(len({call.name for call in task.calls}) == 5 for task in one)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_tools": 0}, "n_tools is 0"),
        ({"n_tools": 2, "structure": "dag"}, "n_tools is 2; expected from 3"),
        ({"n_tools": 3, "difficulty": "easy"}, "difficulty is 'easy'"),
        ({"n_tools": 3, "structure": "tree"}, "structure is 'tree'"),
        ({"n_tools": 3, "per_n": 0}, "per_n is 0"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_tasks(**options)
