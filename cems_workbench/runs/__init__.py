"""Work with progress, cancel and resume, which pages, command line and servers call."""
