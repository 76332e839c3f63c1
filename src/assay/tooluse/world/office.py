"""A small office that remembers: mail, calendar and shopping cart. Nothing leaves the process."""

from __future__ import annotations

from typing import Any

from assay.tooluse.world._registry import State, ToolError, tool
from assay.tooluse.world.finance import read_date

PRICES = {"pen": 2.5, "ink": 8.0, "pad": 4.2, "lamp": 39.0, "desk": 180.0}


def new_state() -> State:
    """An office on its first day."""
    return {"mail": {}, "events": {}, "cart": {}, "next": {"mail": 1, "event": 1}}


def _numbered(state: State, kind: str, letter: str) -> str:
    number = state["next"][kind]
    state["next"][kind] = number + 1
    return f"{letter}{number}"


@tool(
    "office",
    "Send a mail.",
    takes={"address": "address", "subject": "subject", "body": "body"},
    gives={"id": "mail_id"},
    stateful=True,
    hard=(
        "let {address} know '{body}' under the heading '{subject}'",
        "write '{body}' over to {address}, headed '{subject}'",
    ),
)
def send_mail(state: State, address: str, subject: str, body: str) -> dict[str, Any]:
    id_ = _numbered(state, "mail", "m")
    state["mail"][id_] = {"address": address, "subject": subject, "body": body}
    return {"id": id_}


@tool(
    "office",
    "Delete a mail that was sent.",
    takes={"id": "mail_id"},
    gives={"left": "count"},
    stateful=True,
    groups=("mail-id",),
    hard=("get rid of message {id}", "have message {id} vanish from the outbox"),
)
def delete_mail(state: State, id: str) -> dict[str, Any]:
    if id not in state["mail"]:
        raise ToolError(f"no mail has the id {id}")
    del state["mail"][id]
    return {"left": len(state["mail"])}


@tool(
    "office",
    "Read a mail that was sent.",
    takes={"id": "mail_id"},
    gives={"subject": "text", "body": "text"},
    groups=("mail-id",),
    hard=("show me what message {id} says", "open message {id} again for me"),
)
def read_mail(state: State, id: str) -> dict[str, Any]:
    if id not in state["mail"]:
        raise ToolError(f"no mail has the id {id}")
    return {name: state["mail"][id][name] for name in ("subject", "body")}


@tool(
    "office",
    "Add an event to the calendar.",
    takes={"title": "title", "date": "date", "time": "clock", "minutes": "minutes"},
    gives={"id": "event_id"},
    stateful=True,
    hard=(
        "keep {minutes} free from {time} on for {title}, {date}",
        "block {date} at {time} in my diary, {title}, for {minutes} or so",
    ),
)
def add_event(state: State, title: str, date: str, time: str, minutes: int) -> dict[str, Any]:
    read_date(date)
    id_ = _numbered(state, "event", "e")
    state["events"][id_] = {"title": title, "date": date, "time": time, "minutes": minutes}
    return {"id": id_}


@tool(
    "office",
    "Move an event of the calendar to another day.",
    takes={"id": "event_id", "date": "date"},
    gives={"id": "event_id"},
    stateful=True,
    hard=("put appointment {id} off until {date}", "have appointment {id} on {date} instead"),
)
def move_event(state: State, id: str, date: str) -> dict[str, Any]:
    read_date(date)
    if id not in state["events"]:
        raise ToolError(f"no event has the id {id}")
    state["events"][id]["date"] = date
    return {"id": id}


@tool(
    "office",
    "Cancel an event of the calendar.",
    takes={"id": "event_id"},
    gives={"left": "count"},
    stateful=True,
    hard=("call appointment {id} off", "strike appointment {id} out of my diary"),
)
def cancel_event(state: State, id: str) -> dict[str, Any]:
    if id not in state["events"]:
        raise ToolError(f"no event has the id {id}")
    del state["events"][id]
    return {"left": len(state["events"])}


@tool(
    "office",
    "Put articles into the shopping cart.",
    takes={"article": "sku", "quantity": "quantity"},
    gives={"pieces": "count"},
    stateful=True,
    groups=("cart",),
    hard=("I want to buy {quantity} times {article}", "have {quantity} times {article} ready for checkout"),
)
def cart_add(state: State, article: str, quantity: int) -> dict[str, Any]:
    state["cart"][article] = state["cart"].get(article, 0) + quantity
    return {"pieces": sum(state["cart"].values())}


@tool(
    "office",
    "Take articles out of the shopping cart.",
    takes={"article": "sku", "quantity": "quantity"},
    gives={"pieces": "count"},
    stateful=True,
    groups=("cart",),
    hard=("I changed my mind about {quantity} times {article}", "buy {quantity} times {article} less than I said"),
)
def cart_remove(state: State, article: str, quantity: int) -> dict[str, Any]:
    held = state["cart"].get(article, 0)
    if held < quantity:
        raise ToolError(f"the cart holds {held} of {article}")
    state["cart"][article] = held - quantity
    if held == quantity:
        del state["cart"][article]
    return {"pieces": sum(state["cart"].values())}


@tool(
    "office",
    "Price of what is in the shopping cart.",
    takes={},
    gives={"price": "number"},
    hard=("what I must pay at the checkout so far", "how much money the things I picked cost together"),
)
def cart_total(state: State) -> dict[str, Any]:
    return {"price": round(sum(PRICES[one] * count for one, count in state["cart"].items()), 2)}
