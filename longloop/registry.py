"""The classes that a config can name in short, as `"name": "module:Class"`. Any other is written `my_module:MyClass`.

These are strings: nothing is imported before it is used.
"""

ALGOS = {
    "loop": "longloop.algos.loop:Loop",
    "reinforce": "longloop.algos.reinforce:Reinforce",
    "rloo": "longloop.algos.rloo:Rloo",
    "grpo": "longloop.algos.grpo:Grpo",
    "dr_grpo": "longloop.algos.dr_grpo:DrGrpo",
    "dapo": "longloop.algos.dapo:Dapo",
    "gspo": "longloop.algos.gspo:Gspo",
    "ppo": "longloop.algos.ppo:Ppo",
    "compose": "longloop.algos.composed:Composed",
    # rollouts and branches
    "vineppo": "longloop.algos.vineppo:VinePpo",
    "pav": "longloop.algos.pav:Pav",
    "drpo": "longloop.algos.drpo:DrPo",
    "arpo": "longloop.algos.arpo:Arpo",
    "critique_grpo": "longloop.algos.critique_grpo:CritiqueGrpo",
    # turns and critics
    "gigpo": "longloop.algos.gigpo:Gigpo",
    # shapes, rewards and tasks
    # choices, objectives and holds
    "cispo": "longloop.algos.cispo:Cispo",
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

ENVS = {
    "errands": "errands.env:Errands",
    "guess": "longloop.envs.guess:Guess",
    "alfworld": "longloop.envs.alfworld.env:Alfworld",
    "crossroads": "longloop.envs.crossroads:Crossroads",
    "webshop": "longloop.envs.webshop.env:WebShop",
    "multihop_qa": "longloop.envs.multihop_qa:MultihopQA",
    "appworld": "longloop.envs.appworld:AppWorld",
    "mind2web": "longloop.envs.mind2web.env:Mind2Web",
    "scienceworld": "longloop.envs.scienceworld:ScienceWorld",
    "textworld_express": "longloop.envs.textworld_express:TextWorldExpress",
    "gymnasium": "longloop.envs.gymnasium:Gymnasium",
}

ENGINES = {
    "native": "longloop.engines.engine:NativeEngine",
    "scripted": "longloop.engines.scripted:ScriptedEngine",
}
