"""An independent checker of Responses streams: for tests, and for anybody's server with `antiphon check`."""

from antiphon.check.checker import EventChecker, assert_valid, check_stream
from antiphon.check.response import check_response
from antiphon.check.violation import RULES, Violation

__all__ = ["RULES", "EventChecker", "Violation", "assert_valid", "check_response", "check_stream"]
