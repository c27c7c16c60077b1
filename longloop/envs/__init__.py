"""Environments. `"name": "module:Class"`; a config may also name `"my_module:MyEnv"`."""

ENVS = {
    "errands": "longloop.envs.errands.env:Errands",
    "guess": "longloop.envs.guess:Guess",
    "crossroads": "longloop.envs.crossroads:Crossroads",
    "scienceworld": "longloop.envs.scienceworld:ScienceWorld",
    "textworld_express": "longloop.envs.textworld_express:TextWorldExpress",
    "gymnasium": "longloop.envs.gymnasium:Gymnasium",
}
