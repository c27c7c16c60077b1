"""Environments. `"name": "module:Class"`; a config may also name `"my_module:MyEnv"`."""

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
