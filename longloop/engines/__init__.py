"""What samples. `"name": "module:Class"`; a config may also name `"my_module:MyEngine"`."""

ENGINES = {
    "native": "longloop.engines.native:NativeEngine",
    "scripted": "longloop.engines.scripted:ScriptedEngine",
}
