"""How the packaged cross-encoder `workbench/minilm-judge` is made. Not part of the installed package."""
