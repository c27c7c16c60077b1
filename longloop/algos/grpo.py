"""GRPO (arXiv 2402.03300): advantages standardized within the group, token ratios, a KL penalty to the reference.

    A_k = (R_k - mean) / (std + 1e-6)
    maximize mean over attempts of the mean over action tokens of
        min(r_t A, clip(r_t, 1 - eps, 1 + eps) A) - kl * (exp(d_t) - d_t - 1),   d_t = log p_ref - log p

Strictly on-policy by default (one step per iteration), as in both the original and LOOP's comparison. `kl = 0` is the
"GRPO no KL" of that comparison and needs no reference. With LoRA the reference is the model with its adapters off;
without, it is a second copy of the weights, and the run says so.

Differs from the paper: K and the learning rate are those of LOOP's comparison (64 and 1e-6 in the original). The
reference stays the model before training; the original's iterative variant renews it in each outer iteration.
"""

from longloop.algos.composed import FromGrpo


class Grpo(FromGrpo):
    kl: float = 0.04
