"""How models mark thinking and calls in their output, and the parsers that turn it into fragments."""

from antiphon.text.dialects.dialect import Dialect, Tools
from antiphon.text.dialects.machine import Parser
from antiphon.text.dialects.table import DEFAULT_DIALECT, DIALECTS

__all__ = ["DEFAULT_DIALECT", "DIALECTS", "Dialect", "Parser", "Tools"]
