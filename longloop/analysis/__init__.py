"""What became of a run, counted from its stored attempts alone: docs/analyze.md."""
