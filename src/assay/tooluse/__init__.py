"""Where did the agent's tool use go wrong? Scores of recorded runs and live models against reference trajectories.

The names below are loaded when they are first used, so that importing this package costs nothing.
"""
