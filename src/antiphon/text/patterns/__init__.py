"""Grammars of texts as trees, read from the notations that clients use."""
