"""Valid requests as the clients of the field send them, by name; also what the fuzz test starts from."""

from __future__ import annotations

from tests.protocol.support import Json

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
READ = {"type": "function", "name": "read", "description": "Reads.", "parameters": SCHEMA, "strict": True}
PATCH = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Patches.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"},
}


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def call(call_id: str, name: str = "read") -> Json:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}"}


def output(call_id: str) -> Json:
    return {"type": "function_call_output", "call_id": call_id, "output": "ok"}


ALL_FIELDS: Json = {
    "input": "Hi",
    "model": "m",
    "instructions": "Be kind.",
    "max_output_tokens": 1,
    "max_tool_calls": 3,
    "temperature": 0,
    "top_p": 1,
    "top_logprobs": 20,
    "tools": [READ, PATCH, {"type": "namespace", "name": "files", "description": "Files.", "tools": [READ, PATCH]}],
    "tool_choice": {"type": "function", "name": "read"},
    "parallel_tool_calls": False,
    "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA, "strict": True}, "verbosity": "low"},
    "reasoning": {"effort": "high", "summary": "auto", "context": "all"},
    "truncation": "auto",
    "metadata": {"k" * 64: "v" * 512},
    "include": ["message.output_text.logprobs", "reasoning.encrypted_content"],
    "store": False,
    "stream": True,
    "stream_options": {"include_obfuscation": False},
    "background": False,
    "previous_response_id": "resp_1",
    "conversation": {"id": "conv_1"},
    "context_management": [{"type": "compaction"}],
    "prompt": {"id": "pmpt_1"},
    "service_tier": "auto",
    "user": "u",
    "safety_identifier": "s",
    "prompt_cache_key": "p",
    "seed": -1,
    "stop": ["x", "y" * 256],
    "top_k": 0,
    "min_p": 0.5,
    "repetition_penalty": 1.1,
    "presence_penalty": -2,
    "frequency_penalty": 2.0,
    "logit_bias": {"5": -100, "6": 100.0},
    "chat_template_kwargs": {"enable_thinking": False},
}

# What openai-python's `model_dump()` makes of our own output, nulls and all.
DUMPED = [
    {"id": "rs_1", "summary": [], "type": "reasoning", "content": None, "encrypted_content": None, "status": None},
    {
        "id": "rs_2",
        "summary": [{"text": "So.", "type": "summary_text"}],
        "type": "reasoning",
        "content": [{"text": "Hm.", "type": "reasoning_text"}],
        "encrypted_content": None,
        "status": "completed",
    },
    {
        "id": "msg_1",
        "content": [
            {"annotations": [], "text": "Yes.", "type": "output_text", "logprobs": None},
            {"refusal": "No.", "type": "refusal"},
        ],
        "role": "assistant",
        "status": "completed",
        "type": "message",
        "phase": None,
    },
    {
        "arguments": "{}",
        "call_id": "call_1",
        "name": "read",
        "type": "function_call",
        "id": "fc_1",
        "namespace": None,
        "status": "completed",
        "parsed_arguments": None,
    },
    {"type": "function_call_output", "call_id": "call_1", "output": "ok", "id": None, "status": None},
]

CODEX: Json = {
    "model": "m",
    "instructions": "You are a coding agent.",
    "input": [
        {
            "type": "message",
            "id": "client-1",
            "role": "developer",
            "content": [{"type": "input_text", "text": "Rules."}],
        },
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Fix it."}]},
        {
            "type": "reasoning",
            "id": "client-2",
            "summary": [],
            "content": None,
            "encrypted_content": None,
            "internal_chat_message_metadata_passthrough": {"turn": 1},
        },
        {"type": "function_call", "id": "client-3", "call_id": "c1", "name": "exec_command", "arguments": "{"},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "done"}]},
        {
            "type": "custom_tool_call",
            "id": "client-4",
            "call_id": "c2",
            "name": "apply_patch",
            "input": "*** Begin Patch",
            "namespace": "files",
            "status": "completed",
        },
        {
            "type": "custom_tool_call_output",
            "call_id": "c2",
            "output": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}],
        },
    ],
    "tools": [
        {"type": "function", "name": "exec_command", "description": "Runs.", "strict": False, "parameters": SCHEMA},
        {"type": "namespace", "name": "files", "description": "Files.", "tools": [READ]},
        {"type": "web_search", "external_web_access": True},
        {"type": "tool_search", "execution": "client"},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": None,
    "store": False,
    "stream": True,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "key",
    "text": {"verbosity": "medium"},
    "client_metadata": {"originator": "cli"},
}

AI_SDK: Json = {
    "model": "m",
    "input": [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"type": "item_reference", "id": "rs_1"},
        {"id": "fc_1"},
        output("call_1"),
        {"role": "assistant", "content": [{"type": "output_text", "text": "Yes."}], "id": "msg_1"},
        {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA=="}]},
        {"role": "user", "content": [{"type": "input_file", "file_data": "AA==", "filename": "a.pdf"}]},
    ],
    "temperature": None,
    "max_output_tokens": None,
    "tools": [{"type": "function", "name": "read", "description": None, "parameters": SCHEMA, "strict": None}],
    "tool_choice": None,
    "stream": True,
}

VALID: dict[str, Json] = {
    "string": {"input": "Hi"},
    "no items": {"input": [], "max_output_tokens": 1},
    "all fields": ALL_FIELDS,
    "all fields null": {**dict.fromkeys(ALL_FIELDS), "input": "Hi"},
    "inner fields null": {
        "input": [{"type": None, "id": None, "role": "user", "content": None}],
        "tools": [
            {"type": "function", "name": "read", "description": None, "parameters": None, "strict": None},
            {"type": "custom", "name": "patch", "description": None, "format": None},
            {"type": "namespace", "name": "files", "description": None, "tools": []},
        ],
        "text": {"format": None, "verbosity": None},
        "reasoning": {"effort": None, "summary": None, "generate_summary": None},
        "stream_options": {"include_obfuscation": None},
    },
    "every role": {"input": [{"role": role, "content": "a"} for role in ("user", "assistant", "system", "developer")]},
    "every part": {
        "input": [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "a"},
                    {"type": "output_text", "text": "b"},
                    {"type": "text", "text": "c"},
                    {"type": "refusal", "refusal": "d"},
                ],
            }
        ]
    },
    "dumped by an SDK": {"input": [user("Hi"), *DUMPED, user("And?")]},
    "reasoning in other forms": {
        "input": [
            {"type": "reasoning"},
            {"type": "reasoning", "content": [{"type": "text", "text": "a"}], "summary": None},
            {"type": "reasoning", "summary": [{"type": "text", "text": "b"}], "encrypted_content": "x"},
        ]
    },
    "calls and outputs in pairs": {"input": [call("a"), output("a"), call("b"), output("b")]},
    "calls and outputs in groups": {"input": [call("a"), call("b"), output("b"), output("a")]},
    "outputs before calls": {"input": [output("a"), call("a"), user("Go on.")]},
    "a call without an output": {"input": [call("a"), user("Never mind.")]},
    "an output of a stored call": {"input": [output("a")], "previous_response_id": "resp_1"},
    "an output of a call in a conversation": {"input": [output("a")], "conversation": "conv_1"},
    "an output of a compacted call": {"input": [{"type": "compaction", "encrypted_content": "x"}, output("a")]},
    "compaction trigger": {"input": [user("Hi"), {"type": "compaction_trigger"}]},
    "tools as an item": {
        "input": [
            {"type": "additional_tools", "role": "developer", "tools": [{**READ, "name": "late"}]},
            user("Hi"),
        ],
        "tool_choice": {"type": "function", "name": "late"},
    },
    "unknown fields everywhere": {
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "a", "x": 1}], "y": {}}],
        "tools": [{**READ, "defer_loading": True, "output_schema": None}],
        "client_metadata": {"a": [1]},
        "reasoning": {"effort": "none", "context": "auto"},
    },
    "Codex": CODEX,
    "AI SDK": AI_SDK,
    "one stop": {"input": "Hi", "stop": "\n"},
    "sixteen stops": {"input": "Hi", "stop": ["x"] * 16},
    "metadata at its bound": {"input": "Hi", "metadata": {str(n): "" for n in range(16)}},
    "the same name in two namespaces": {
        "input": "Hi",
        "tools": [READ, *({"type": "namespace", "name": name, "tools": [READ]} for name in "ab")],
    },
    "required": {"input": "Hi", "tools": [READ], "tool_choice": "required"},
    "required of a namespace": {
        "input": "Hi",
        "tools": [{"type": "namespace", "name": "files", "tools": [READ]}],
        "tool_choice": "required",
    },
    "none without tools": {"input": "Hi", "tool_choice": "none"},
    "custom choice": {"input": "Hi", "tools": [PATCH], "tool_choice": {"type": "custom", "name": "apply_patch"}},
    "a choice in a namespace": {
        "input": "Hi",
        "tools": [{"type": "namespace", "name": "files", "tools": [READ]}],
        "tool_choice": {"type": "function", "name": "read"},
    },
    "allowed tools": {
        "input": "Hi",
        "tools": [READ, PATCH],
        "tool_choice": {
            "type": "allowed_tools",
            "mode": "required",
            "tools": [{"type": "function", "name": "read"}, {"type": "custom", "name": "apply_patch"}],
        },
    },
    "no allowed tool": {
        "input": "Hi",
        "tools": [READ],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []},
    },
    "json object": {"input": "Hi", "text": {"format": {"type": "json_object"}}},
    "custom tool of text": {
        "input": "Hi",
        "tools": [{"type": "custom", "name": "a", "format": {"type": "text"}}],
    },
}
VALID |= {
    f"effort {effort}": {"input": "Hi", "reasoning": {"effort": effort}}
    for effort in ("none", "minimal", "low", "medium", "high", "xhigh", "max", "ultracode")
}
