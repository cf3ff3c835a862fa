"""The pages of the app, a folder each, over `runs` and the layers below it."""
