"""What the documents say is so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from antiphon import __version__
from tests.server import scripted_server

ROOT = Path(__file__).parents[1]

IMAGE = {"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}
FILE = {"role": "user", "content": [{"type": "input_file", "file_data": "data:,"}]}

# A line of the README's table to requests that it speaks of: what is sent, and the `param` of the refusal.
NOT_SERVED: dict[str, list[tuple[dict[str, Any], str]]] = {
    "`background`, `store: true`, `previous_response_id`, `conversation`": [
        ({"background": True}, "background"),
        ({"store": True}, "store"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
    ],
    "`context_management`, `prompt`, `service_tier` other than auto and default": [
        ({"context_management": [{"type": "compaction"}]}, "context_management"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"service_tier": "flex"}, "service_tier"),
    ],
    "`stream_options.include_obfuscation: true`": [
        ({"stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation")
    ],
    "`reasoning.effort`": [({"reasoning": {"effort": "low"}}, "reasoning.effort")],
    "`input[n].type` item_reference, compaction, compaction_trigger": [
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].type"),
        ({"input": [{"type": "compaction", "encrypted_content": "x"}]}, "input[0].type"),
        ({"input": [{"type": "compaction_trigger"}]}, "input[0].type"),
    ],
    "`input[n].content[m].type` input_image, input_file": [
        ({"input": [IMAGE]}, "input[0].content[0].type"),
        ({"input": [FILE]}, "input[0].content[0].type"),
    ],
}


def readme_table() -> list[str]:
    section = (ROOT / "README.md").read_text().partition("**Not served yet**")[2].partition("\n\nHosted")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    return [row.split("|")[1].strip() for row in rows]


def test_the_readme_s_table_has_a_request_for_each_line() -> None:
    assert readme_table() == list(NOT_SERVED)


async def test_what_the_readme_says_is_not_served_is_refused_by_name(tmp_path: Path) -> None:
    async with scripted_server(tmp_path, [{"steps": ["a"]}]) as server:
        for body, param in (case for cases in NOT_SERVED.values() for case in cases):
            answer = await server.client.post("/v1/responses", json={"input": "Hi", **body})
            error = answer.json()["error"]
            assert (answer.status_code, error["param"], error["code"]) == (400, param, "unsupported_value"), body


def test_the_changelog_begins_with_this_version() -> None:
    found = re.search(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert found is not None
    assert found[1] == __version__


def test_links_between_documents_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
