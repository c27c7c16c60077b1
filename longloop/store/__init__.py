"""The run folder: documented in docs/run-format.md, written append-only, read by everything else."""
