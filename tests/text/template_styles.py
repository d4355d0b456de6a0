"""Small chat templates in the styles of the field, each with the whims of its family."""

from __future__ import annotations

# Tools, calls as text or object, results as user text, reasoning of the running tool loop, a thinking switch.
QWEN = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- '<tools>' }}
    {%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}
    {{- '\\n</tools><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(last_user=-1) %}
{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last_user = loop.index0 %}{%- endif %}{%- endfor %}
{%- for m in messages %}
    {%- if m.role == 'user' or (m.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' ~ m.role ~ '\\n' ~ m.content ~ '<|im_end|>\\n' }}
    {%- elif m.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if m.reasoning_content and loop.index0 > ns.last_user %}
            {{- '<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n' }}
        {%- endif %}
        {{- m.content }}
        {%- for call in m.tool_calls %}
            {%- if m.content or not loop.first %}{{- '\\n' }}{%- endif %}
            {{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
            {%- if call.function.arguments is string %}{{- call.function.arguments }}
            {%- else %}{{- call.function.arguments | tojson }}{%- endif %}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif m.role == 'tool' %}
        {%- if loop.previtem.role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}"""

# Calls must be objects, one a message, and hide the message's text; results are JSON; the date is shown.
LLAMA3 = """\
{{- bos_token }}
{%- macro header(role) %}{{- '<|start_header_id|>' + role + '<|end_header_id|>\\n\\n' }}{%- endmacro %}
{%- if tools %}
    {{- header('system') + strftime_now('%d %b %Y') + '\\n' + (tools | tojson(indent=2)) + '<|eot_id|>' }}
{%- endif %}
{%- for m in messages %}
    {%- if 'tool_calls' in m %}
        {%- if m.tool_calls | length != 1 %}{{- raise_exception('One call at a time, please.') }}{%- endif %}
        {%- set f = m.tool_calls[0].function %}
        {{- header('assistant') + '{"name": "' + f.name + '", "parameters": ' }}
        {{- (f.arguments | tojson) + '}<|eot_id|>' }}
    {%- elif m.role == 'tool' %}
        {{- header('ipython') + (m.content | tojson) + '<|eot_id|>' }}
    {%- else %}
        {{- header(m.role) + m.content | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- header('assistant') }}{%- endif %}"""

# No system role, no tools, strict turns.
GEMMA = """\
{{ bos_token }}
{%- if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{%- for m in messages %}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}
{%- set role = 'model' if m.role == 'assistant' else m.role %}
{{- '<start_of_turn>' + role + '\\n' + m.content | trim + '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"""

# Strict turns (calls and results aside), ids of nine characters, system text and tools only with a user message at the
# end, and calls hide the text.
MISTRAL = """\
{%- set ns = namespace(turn=0, system='') %}
{%- for m in messages %}
    {%- if m.role == 'system' and loop.first %}{%- set ns.system = m.content + '\\n\\n' %}
    {%- elif m.role != 'tool' and not m.tool_calls %}
        {%- if (m.role == 'user') != (ns.turn % 2 == 0) %}{{- raise_exception('Roles must alternate') }}{%- endif %}
        {%- set ns.turn = ns.turn + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for m in messages %}
    {%- if m.role == 'user' %}
        {%- if loop.last and tools %}{{- '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{%- endif %}
        {{- '[INST]' + (ns.system if loop.last else '') + m.content + '[/INST]' }}
    {%- elif m.tool_calls %}
        {%- for call in m.tool_calls %}
            {%- if call.id | length != 9 %}{{- raise_exception('Ids have nine characters') }}{%- endif %}
            {{- '[TOOL_CALLS]' + (call.function | tojson) + call.id }}
        {%- endfor %}
        {{- eos_token }}
    {%- elif m.role == 'assistant' %}{{- m.content + eos_token }}
    {%- elif m.role == 'tool' %}{{- '[TOOL_RESULTS]' + m.content + m.tool_call_id + '[/TOOL_RESULTS]' }}
    {%- endif %}
{%- endfor %}"""

# The last system text wins, the answer begins inside a thinking block, and arguments are concatenated as text.
DEEPSEEK = """\
{%- set ns = namespace(system='') %}
{%- for m in messages %}{%- if m.role == 'system' %}{%- set ns.system = m.content %}{%- endif %}{%- endfor %}
{{- bos_token + ns.system }}
{%- for m in messages %}
    {%- if m.role == 'user' %}{{- '<|User|>' + m.content }}
    {%- elif m.role == 'assistant' %}
        {{- '<|Assistant|>' + m.content.split('</think>')[-1] }}
        {%- for call in m.tool_calls %}
            {{- '<|call|>' + call.function.name + '\\n```json\\n' + call.function.arguments + '\\n```' }}
        {%- endfor %}
        {{- eos_token }}
    {%- elif m.role == 'tool' %}{{- '<|output|>' + m.content }}
    {%- endif %}
{%- endfor %}
{{- '<|Assistant|><think>\\n' }}"""

# Content is a list of parts; system text stands anywhere.
PARTS = """\
{%- for m in messages %}
    {{- '<|' + m.role + '|>' }}
    {%- for part in m.content %}{{- part['text'] }}{%- endfor %}
    {{- '<|end|>' }}
{%- endfor %}
{{- '<|assistant|>' }}"""

# One leading system message, a word for the effort, and a raise for anything it does not know.
STERN = """\
{%- if reasoning_effort is defined and reasoning_effort not in ['low', 'high'] %}
    {{- raise_exception('Only low and high.') }}
{%- endif %}
{%- for m in messages %}
    {%- if m.role == 'system' and not loop.first %}{{- raise_exception('System message must be first.') }}{%- endif %}
    {{- '<|' + m.role + '|>' + m.content }}
{%- endfor %}
{{- '<|effort ' + (reasoning_effort | default('high')) + '|><|assistant|>' }}"""

# Tools are a text in the system message; calls are not shown.
PHI = """\
{%- for m in messages %}
    {%- if m.role == 'system' and 'tools' in m and m.tools is not none %}
        {{- '<|system|>' + m.content + '<|tool|>' + m.tools + '<|/tool|><|end|>' }}
    {%- else %}
        {{- '<|' + m.role + '|>' + m.content + '<|end|>' }}
    {%- endif %}
{%- endfor %}
{{- '<|assistant|>' }}"""
