"""A stand-in for tau-bench, whose code is not ours to keep: the same names, a shop with one customer and two orders."""
