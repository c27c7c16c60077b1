"""Engines: they sample from the policy. `engine.py` describes how a token comes about."""
