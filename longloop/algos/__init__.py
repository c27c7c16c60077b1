"""Algorithms, one page each. `"name": "module:Class"`; a config may also name `"my_module:MyAlgorithm"`."""

HOPELESS = (
    "this model never succeeds here, and where all attempts fare alike there is nothing to learn from. Let it imitate "
    "first (algo.name=sft, with the environment's expert or demos=RUN), give it easier tasks, show a worked example in "
    "the first message, or take another model."
)
"""What is said of a policy that fails at everything: by the doctor, during training and at its end."""
TELLING = 64
"""Attempts from which that can be told: a policy that succeeds once in 20 has most likely done so among them."""

ALGOS = {
    "loop": "longloop.algos.loop:Loop",
    "reinforce": "longloop.algos.reinforce:Reinforce",
    "rloo": "longloop.algos.rloo:Rloo",
    "grpo": "longloop.algos.grpo:Grpo",
    "dr_grpo": "longloop.algos.dr_grpo:DrGrpo",
    "dapo": "longloop.algos.dapo:Dapo",
    "gspo": "longloop.algos.gspo:Gspo",
    "ppo": "longloop.algos.ppo:Ppo",
    "sft": "longloop.algos.sft:SFT",
    "sft_gt": "longloop.algos.sft_gt:SftGt",
    "ei": "longloop.algos.ei:Ei",
    "rft": "longloop.algos.rft:Rft",
    "nat": "longloop.algos.nat:Nat",
    "dpo": "longloop.algos.dpo:Dpo",
    "dmpo": "longloop.algos.dmpo:Dmpo",
    "eto": "longloop.algos.eto:Eto",
    "spin": "longloop.algos.spin:Spin",
    "tree_dpo": "longloop.algos.tree_dpo:TreeDpo",
    "stepagent_implicit": "longloop.algos.stepagent_implicit:StepAgentImplicit",
    "stepagent_inverse": "longloop.algos.stepagent_inverse:StepAgentInverse",
}
