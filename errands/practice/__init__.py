"""Practice: many small kinds of errand, built from sources, conditions and wishes (blocks.py), one module per app."""
