"""Chess positions by ``chess``, dice, and ratings."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from assay.tooluse.world._registry import State, ToolError, tool

ELO_SPREAD, ELO_STEP = 400, 20
VALUES = {"p": 1, "n": 3, "b": 3, "r": 5, "q": 9, "k": 0}


def _board(fen: str) -> Any:
    import chess

    try:
        return chess.Board(fen)
    except ValueError as error:
        raise ToolError(f"{fen} is not a chess position") from error


@tool(
    "games",
    "Number of legal moves in a chess position.",
    takes={"fen": "fen"},
    gives={"number": "count"},
    groups=("position",),
    hard=("how many ways to go on the player has at the board {fen}", "how free the side to go is at the board {fen}"),
)
def chess_moves(state: State, fen: str) -> dict[str, Any]:
    return {"number": _board(fen).legal_moves.count()}


@tool(
    "games",
    "Whether the side to move is in check or mate in a chess position.",
    takes={"fen": "fen"},
    gives={"check": "boolean", "mate": "boolean"},
    groups=("position",),
    hard=("whether a king is attacked or lost at the board {fen}", "if the battle at the board {fen} is over already"),
)
def chess_status(state: State, fen: str) -> dict[str, Any]:
    board = _board(fen)
    return {"check": board.is_check(), "mate": board.is_checkmate()}


@tool(
    "games",
    "Material of both sides in a chess position, in pawns.",
    takes={"fen": "fen"},
    gives={"white": "count", "black": "count"},
    groups=("position",),
    hard=("who owns more wood at the board {fen}", "how many pawns' worth each side has left at the board {fen}"),
)
def chess_material(state: State, fen: str) -> dict[str, Any]:
    pieces = list(_board(fen).piece_map().values())
    sides = [sum(VALUES[p.symbol().lower()] for p in pieces if p.color is side) for side in (True, False)]
    return {"white": sides[0], "black": sides[1]}


@tool(
    "games",
    "Play a move in a chess position; the new position.",
    takes={"fen": "fen", "move": "move"},
    gives={"fen": "fen"},
    hard=(
        "what the board {fen} looks like once {move} is done",
        "the picture after somebody at the board {fen} does {move}",
    ),
)
def chess_play(state: State, fen: str, move: str) -> dict[str, Any]:
    import chess

    board = _board(fen)
    step = chess.Move.from_uci(move)
    if step not in board.legal_moves:
        raise ToolError(f"{move} is not a legal move there")
    board.push(step)
    return {"fen": board.fen()}


@tool(
    "games",
    "Colour of a square of the chess board.",
    takes={"square": "square"},
    gives={"colour": "text"},
    hard=("whether {square} is one of the dark fields", "if a bishop of the light fields may stand on {square}"),
)
def square_colour(state: State, square: str) -> dict[str, Any]:
    return {"colour": "light" if (ord(square[0]) + int(square[1])) % 2 else "dark"}


@lru_cache(maxsize=256)
def ways(dice: int, sides: int, total: int) -> int:
    """In how many ways so many dice give a sum."""
    if dice == 0:
        return int(total == 0)
    return sum(ways(dice - 1, sides, total - eye) for eye in range(1, min(sides, total) + 1))


@tool(
    "games",
    "Probability that dice show exactly a sum.",
    takes={"dice": "dice", "sides": "sides", "total": "total"},
    gives={"value": "number"},
    groups=("dice",),
    hard=(
        "what odds there are of rolling {total} with {dice} cubes numbered up to {sides}",
        "if betting on {total} with {dice} cubes numbered up to {sides} is wise",
    ),
)
def dice_probability(state: State, dice: int, sides: int, total: int) -> dict[str, Any]:
    if not dice <= total <= dice * sides:
        raise ToolError(f"{dice} dice can't show {total}")
    return {"value": round(ways(dice, sides, total) / sides**dice, 8)}


@tool(
    "games",
    "Mean sum that dice show.",
    takes={"dice": "dice", "sides": "sides"},
    gives={"value": "number"},
    groups=("dice",),
    hard=(
        "what {dice} cubes numbered up to {sides} give in the long run",
        "how much one moves per throw of {dice} cubes numbered up to {sides}, on average",
    ),
)
def dice_expectation(state: State, dice: int, sides: int) -> dict[str, Any]:
    return {"value": dice * (sides + 1) / 2}


@tool(
    "games",
    "Expected score of a player against an opponent, by Elo ratings.",
    takes={"rating": "rating", "opponent": "rating"},
    gives={"value": "number"},
    groups=("elo",),
    hard=(
        "what chances somebody at {rating} has facing somebody at {opponent}",
        "how often a {rating} beats a {opponent} in the long run, draws as halves",
    ),
)
def elo_expectation(state: State, rating: float, opponent: float) -> dict[str, Any]:
    return {"value": round(1 / (1 + 10 ** ((opponent - rating) / ELO_SPREAD)), 6)}


@tool(
    "games",
    "Elo rating of a player after a win against an opponent, with a step of 20.",
    takes={"rating": "rating", "opponent": "rating"},
    gives={"value": "number"},
    groups=("elo",),
    hard=(
        "where somebody at {rating} stands once they beat somebody at {opponent}",
        "how far up the ladder {rating} climbs by beating {opponent}",
    ),
)
def elo_after_win(state: State, rating: float, opponent: float) -> dict[str, Any]:
    expected = 1 / (1 + 10 ** ((opponent - rating) / ELO_SPREAD))
    if not math.isfinite(expected):
        raise ToolError("ratings out of range")
    return {"value": round(rating + ELO_STEP * (1 - expected), 4)}
