"""From what was said to what was answered: transcripts beside a store's memories, and the place where each question loses its fact.

A transcript is a store of its own in the folder `transcript` of the store, so that its turns are never ranked among memories.
"""
