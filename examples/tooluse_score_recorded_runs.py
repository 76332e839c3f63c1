"""You have recordings of an agent in two formats and references of what it should have called. Where did it go wrong?

Run it: python examples/tooluse_score_recorded_runs.py
"""

import json
import tempfile
from pathlib import Path

from assay.tooluse import Gold, Tool, explain, read, score_many
from assay.tooluse.trajectories import make_calls

parameters = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 3}}}
tools = [
    Tool("forecast", "Weather forecast of a city for some days", {**parameters, "required": ["city"]}),
    Tool("history", "Weather history of a city for some days", {**parameters, "required": ["city"]}),
]
golds = [
    Gold(
        make_calls([("forecast", {"city": "Lima", "days": 3})]), id="lima", query="Will it rain in Lima these 3 days?"
    ),
    Gold(make_calls([("forecast", {"city": "Oslo", "days": 5})]), id="oslo", query="Oslo's weather for 5 days, please"),
]

with tempfile.TemporaryDirectory() as folder:
    openai = {"tool_calls": [{"id": "1", "function": {"name": "forecast", "arguments": '{"city": "Lima"}'}}]}
    anthropic = [{"type": "tool_use", "id": "2", "name": "history", "input": {"city": "Oslo", "days": 5}}]
    for name, message in (("lima", openai), ("oslo", {"content": anthropic})):
        messages = [{"role": "assistant", "content": None, **message}]
        (Path(folder) / f"{name}.json").write_text(json.dumps({"messages": messages}))
    runs = read(folder)

report = score_many(runs, golds, tools=tools)
for run in runs:
    gold = report.golds[run.id]
    print(run.id, explain(run, gold, tools=tools), sep="\n", end="\n\n")

print({name: found.mean for name, found in report.summary().items() if name in ("name_em", "call_f1")})
assert report.scores[0]["call_em"] == 1  # days was left out, and 3 is its default
assert report.scores[1].labels == ("similar_tool_confusion",)
