"""Environments. `"name": "module:Class"`; a config may also name `"my_module:MyEnv"`."""

ENVS = {
    "errands": "longloop.envs.errands.env:Errands",
    "guess": "longloop.envs.guess:Guess",
    "crossroads": "longloop.envs.crossroads:Crossroads",
    "appworld": "longloop.envs.appworld:AppWorld",
    "mind2web": "longloop.envs.mind2web:Mind2Web",
}
