"""The version of Errands, where every module may read it."""

__version__ = "1.3"
"""Raised with every change that alters a score: tasks, worlds, instructions, APIs, what an agent reads, the judge."""
