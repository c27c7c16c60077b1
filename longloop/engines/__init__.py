"""What samples. `"name": "module:Class"`; a config may also name `"my_module:MyEngine"`."""

ENGINES = {
    "native": "longloop.engines.engine:NativeEngine",
    "scripted": "longloop.engines.scripted:ScriptedEngine",
}
