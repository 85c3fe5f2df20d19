"""From an offer to a run that is taken up or refused, and what is heard from parent and children in it."""
