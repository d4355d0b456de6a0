"""What a response object must say, by its status: streamed or not, the same rules."""

from __future__ import annotations

from typing import Any

from antiphon.check.items import Ids, check_id
from antiphon.check.tables import ENCRYPTED, ENDED_STATUSES, RESPONSE, RESPONSE_PREFIX
from antiphon.check.violation import Report, Violation


def check_response(response: Any) -> list[Violation]:
    """What is wrong with a response that was not streamed, or is stored. All violations have index 0."""
    found: list[Violation] = []

    def report(rule: str, message: str) -> None:
        found.append(Violation(rule, 0, message))

    for fault in RESPONSE.faults(response, "response"):
        report("fields", fault)
    if not found:
        check_id(response["id"], RESPONSE_PREFIX, report)
        ids = Ids(report)
        for item in response["output"]:
            ids.add(item)
            check_item(item, response, report)
        check_progress(response, report)
    return found


def check_progress(response: dict[str, Any], report: Report) -> None:
    """What has become of the response, in a response whose fields are right."""
    status = response["status"]
    if (response["error"] is not None) != (status == "failed"):
        report("error", f"error is {response['error']!r} in a {status} response")
    if (response["incomplete_details"] is not None) != (status == "incomplete"):
        report("incomplete", f"incomplete_details are {response['incomplete_details']!r} in a {status} response")
    _check_completed_at(response, report)
    _check_usage(response, report)
    if status in ENDED_STATUSES:
        _check_output(response, report)


def check_item(item: dict[str, Any], response: dict[str, Any], report: Report) -> None:
    """What a finished item must say in this response."""
    if "encrypted_content" in item and item["type"] not in ENCRYPTED:
        report("encrypted", f"encrypted_content in a {item['type']}")
    if item["type"] != "reasoning" or not item["summary"]:
        return
    if item["content"] or len(item["summary"]) > 1:
        report("reasoning", "thinking goes out once: as content, or as a summary in one part")
    if not (response["reasoning"] or {}).get("summary"):
        report("reasoning", "a summary that the request did not ask for")


def _check_completed_at(response: dict[str, Any], report: Report) -> None:
    status, at = response["status"], response["completed_at"]
    if at is None:
        if status == "completed":
            report("completed_at", "null in a completed response")
    elif status not in ENDED_STATUSES:
        report("completed_at", f"{at} in a response that is {status}")
    elif at < response["created_at"]:
        report("completed_at", f"{at} is before created_at {response['created_at']}")


def _check_usage(response: dict[str, Any], report: Report) -> None:
    usage = response["usage"]
    if (usage is not None) != (response["status"] in ENDED_STATUSES):
        report("usage", f"usage is {usage!r} in a {response['status']} response")
    if usage is None:
        return
    if usage["input_tokens"] + usage["output_tokens"] != usage["total_tokens"]:
        report("usage", "total_tokens is not the sum of input_tokens and output_tokens")
    if usage["output_tokens_details"]["reasoning_tokens"] > usage["output_tokens"]:
        report("usage", "more reasoning_tokens than output_tokens")
    for key, count in usage["input_tokens_details"].items():
        if key in ("cached_tokens", "cache_write_tokens") and count > usage["input_tokens"]:
            report("usage", f"more {key} than input_tokens")


def _check_output(response: dict[str, Any], report: Report) -> None:
    status, output = response["status"], response["output"]
    if not output and status in ("completed", "incomplete"):
        report("output", f"empty in a response that is {status}: an empty answer is a message with an empty text")
    for index, item in enumerate(output):
        whole = item.get("status", "completed") == "completed"
        cut = item.get("status") == "incomplete" and index == len(output) - 1 and status != "completed"
        if not whole and not cut:
            report("item.status", f"item {index} is {item['status']} in a {status} response of {len(output)} items")
    if len({"encrypted_content" in item for item in output if item["type"] == "reasoning"}) > 1:
        report("encrypted", "encrypted_content in one reasoning item and not in another")
    calls = sum(item["type"] in ("function_call", "custom_tool_call") for item in output)
    if calls > 1 and not response["parallel_tool_calls"]:
        report("calls", f"{calls} calls without parallel_tool_calls")
