"""Engines write responses. One protocol, one file per engine, imported when it is asked for."""

# name -> "module:class"
ENGINES = {"transformers": "pmdkit.llm.engines.embedded:EmbeddedEngine"}
