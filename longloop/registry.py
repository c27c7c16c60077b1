"""The classes that a config can name in short, as `"name": "module:Class"`. Any other is written `my_module:MyClass`.

These are strings: nothing is imported before it is used.
"""

FAMILIES: dict[str, dict[str, str]] = {
    "LOOP and its relatives": {
        "loop": "longloop.algos.loop:Loop",
        "reinforce": "longloop.algos.reinforce:Reinforce",
        "rloo": "longloop.algos.rloo:Rloo",
        "grpo": "longloop.algos.grpo:Grpo",
        "dr_grpo": "longloop.algos.dr_grpo:DrGrpo",
        "dapo": "longloop.algos.dapo:Dapo",
        "gspo": "longloop.algos.gspo:Gspo",
        "ppo": "longloop.algos.ppo:Ppo",
        "compose": "longloop.algos.compose:Compose",
    },
    "Attempts from elsewhere": {
        "vineppo": "longloop.algos.vineppo:VinePpo",
        "pav": "longloop.algos.pav:Pav",
        "drpo": "longloop.algos.drpo:DrPo",
        "arpo": "longloop.algos.arpo:Arpo",
        "himac": "longloop.algos.himac:Himac",
        "critique_grpo": "longloop.algos.critique_grpo:CritiqueGrpo",
    },
    "Credit for turns": {
        "gigpo": "longloop.algos.gigpo:Gigpo",
        "igpo": "longloop.algos.igpo:Igpo",
        "gtpo": "longloop.algos.gtpo:Gtpo",
        "turn_ppo": "longloop.algos.turn_ppo:TurnPpo",
        "reinforce_value": "longloop.algos.reinforce_value:ReinforceValue",
        "tppo": "longloop.algos.tppo:Tppo",
        "eapo": "longloop.algos.eapo:Eapo",
        "digirl": "longloop.algos.digirl:DigiRL",
        "archer": "longloop.algos.archer:Archer",
        "bnpo": "longloop.algos.bnpo:Bnpo",
        "riskpo": "longloop.algos.riskpo:RiskPO",
    },
    "Shaped advantages, rewards and tasks": {
        "empg": "longloop.algos.empg:Empg",
        "seed_grpo": "longloop.algos.seed_grpo:SeedGrpo",
        "aspo": "longloop.algos.aspo:Aspo",
        "aepo": "longloop.algos.aepo:Aepo",
        "ettrl": "longloop.algos.ettrl:Ettrl",
        "empo": "longloop.algos.empo:Empo",
        "otc": "longloop.algos.otc:Otc",
        "ares": "longloop.algos.ares:Ares",
        "dump": "longloop.algos.dump:Dump",
        "scaling_inter": "longloop.algos.scaling_inter:ScalingInter",
    },
    "Choices, objectives and holds": {
        "cispo": "longloop.algos.cispo:Cispo",
        "bapo": "longloop.algos.bapo:Bapo",
        "nft": "longloop.algos.nft:Nft",
        "clip_cov": "longloop.algos.clip_cov:ClipCov",
        "kl_cov": "longloop.algos.kl_cov:KlCov",
        "d3s": "longloop.algos.d3s:D3s",
        "tis": "longloop.algos.tis:Tis",
        "mis": "longloop.algos.mis:Mis",
        "trm": "longloop.algos.trm:Trm",
        "capo": "longloop.algos.capo:Capo",
        "steer": "longloop.algos.steer:Steer",
        "epo": "longloop.algos.epo:Epo",
        "siren": "longloop.algos.siren:Siren",
        "lp_reg": "longloop.algos.lp_reg:LpReg",
        "demo_rl": "longloop.algos.demo_rl:DemoRl",
        "aepo_entropy": "longloop.algos.aepo_entropy:AepoEntropy",
    },
    "Imitation": {
        "sft": "longloop.algos.sft:SFT",
        "sft_gt": "longloop.algos.sft_gt:SftGt",
        "ei": "longloop.algos.ei:Ei",
        "rft": "longloop.algos.rft:Rft",
        "nat": "longloop.algos.nat:Nat",
    },
    "Preferences": {
        "dpo": "longloop.algos.dpo:Dpo",
        "dmpo": "longloop.algos.dmpo:Dmpo",
        "eto": "longloop.algos.eto:Eto",
        "spin": "longloop.algos.spin:Spin",
        "tree_dpo": "longloop.algos.tree_dpo:TreeDpo",
        "agent_q": "longloop.algos.agent_q:AgentQ",
        "mcts_ipl": "longloop.algos.mcts_ipl:MctsIpl",
        "inpo": "longloop.algos.inpo:Inpo",
    },
    "StepAgent": {
        "stepagent_implicit": "longloop.algos.stepagent_implicit:StepAgentImplicit",
        "stepagent_inverse": "longloop.algos.stepagent_inverse:StepAgentInverse",
    },
}
"""The algorithms by family: name -> module:Class."""

ALGOS = {name: where for family in FAMILIES.values() for name, where in family.items()}

ENVS = {
    "errands": "errands.env:Errands",
    "errands_tools": "errands.tool_env:ErrandsTools",
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
    "reasoning_gym": "longloop.envs.reasoning_gym:ReasoningGym",
    "textarena": "longloop.envs.textarena:TextArena",
    "bfcl": "longloop.envs.bfcl:Bfcl",
    "agentdojo": "longloop.envs.agentdojo:AgentDojo",
    "mcp": "longloop.envs.mcp:Mcp",
    "tau_bench": "longloop.envs.tau_bench:TauBench",
    "openenv": "longloop.envs.openenv:OpenEnv",
    "verifiers": "longloop.gateway.verifiers:Verifiers",
    "agent": "longloop.gateway.env:Agent",
}

ENGINES = {
    "native": "longloop.engines.engine:NativeEngine",
    "vllm": "longloop.engines.vllm:VllmEngine",
    "openai": "longloop.engines.openai:OpenAIEngine",
    "scripted": "longloop.engines.scripted:ScriptedEngine",
}
