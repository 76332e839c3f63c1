"""You have a model behind a function or an endpoint. How does it do on tasks with tools that really run?

The model here is a stand-in that takes the tool whose description is nearest to each sentence; put your own in its
place, or an EndpointClient with the address of a server that speaks OpenAI's protocol.

Run it: python examples/tooluse_live_run.py
"""

from assay.tooluse import Retriever, ToolWorld, evaluate, make_tasks, paired_difference, score_many
from assay.tooluse.agents import select_tools

world = ToolWorld.load("offline")
tasks = make_tasks((2, 3, 4), "parallel", per_n=10, seed=7, world=world)
retriever = Retriever("bm25")


def model(messages, tools):
    """One turn of calls, then a last word."""
    if messages[-1]["role"] == "tool":
        return "That is all."
    names = select_tools(messages[0]["content"], world.tools(), retriever.scores)
    return {"tool_calls": [{"id": str(i), "function": {"name": n, "arguments": "{}"}} for i, n in enumerate(names)]}


runs = evaluate(model, tasks, pool="all", agent="native")
report = score_many(runs, tasks, tools=world.tools())
print(report.by("difficulty")[["difficulty", "runs", "name_em", "name_f1"]].to_string(index=False))
print("labels:", report.labels())

by_level = {level: [s["name_f1"] for s in report.scores if s.id.endswith(level)] for level in ("simple", "hard")}
drop = paired_difference(by_level["simple"], by_level["hard"])
print(f"hidden words cost {drop.mean:.2f} of name F1 ({drop.low:.2f} to {drop.high:.2f})")
assert drop.low > 0
