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
}
