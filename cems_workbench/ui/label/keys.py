"""The keys of the Label page: a listener that presses the card's own buttons.

Streamlit's own shortcuts belong to a button and begin with it, so that a key pressed while a card is being painted was lost, and they
refuse "?". This listener begins before the card: a key is meant for the card that can be seen when it is pressed, waits for that
card's button to be there, and presses it. A card is answered once; a second key before the next card can be seen does nothing, since
nobody has read that card yet. The buttons carry the card's turn in their key, so that a late press can never reach another card.
"""

from __future__ import annotations

from cems_workbench.ui.kit.assets import write_script


def listen() -> None:
    """Begin to listen, once per window; drawn before the card."""
    write_script("label_keys")
