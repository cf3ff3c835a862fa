"""Running systems to read from: what a source is (`source`), where it is (`address`), and a module for each kind."""
