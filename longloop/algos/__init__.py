"""Algorithms, one page each. `"name": "module:Class"`; a config may also name `"my_module:MyAlgorithm"`."""

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
