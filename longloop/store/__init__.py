"""The run folder: documented in docs/reference/run-format.md, written append-only, read by everything else."""
