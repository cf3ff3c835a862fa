"""Why a memory is missing: its path, the stage that lost it, and the smallest changes that bring it back."""
