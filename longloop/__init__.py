"""longloop: train an LLM agent by reinforcement learning inside the environment it will work in."""

__version__ = "0.1.0"
