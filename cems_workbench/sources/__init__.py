"""Live sources: the protocol (`source`), addresses (`address`), and the kinds (`kinds`)."""
