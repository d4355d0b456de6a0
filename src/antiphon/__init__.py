"""Antiphon: serve your own language models through the Responses API."""

__version__ = "0.1.0"
