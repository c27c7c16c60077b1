"""The run folder: docs/run-format.md describes it, `run.py` writes it, `run_reader.py` reads it for everything else."""
