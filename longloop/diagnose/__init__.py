"""Checks for what would spoil a run: `longloop check`, `longloop doctor`, and the check before every run."""
