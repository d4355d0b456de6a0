"""The dialects by name."""

from __future__ import annotations

from antiphon.text.dialects import gemma, harmony, json_families, pythonic, xml_calls
from antiphon.text.dialects.dialect import Calling, Dialect
from antiphon.text.dialects.json_calls import JsonCalls, json_call
from antiphon.text.dialects.states import Tags

THINK = Tags("<think>", "</think>")

HERMES = Calling(tags=Tags("<tool_call>", "</tool_call>"), body=JsonCalls, call=json_call("name", "arguments"))

DIALECTS = {
    dialect.name: dialect
    for dialect in (
        Dialect(name="plain"),
        Dialect(name="think", thinking=THINK),
        Dialect(name="hermes", thinking=THINK, calling=HERMES),
        *json_families.JSON_FAMILIES,
        pythonic.LLAMA_PYTHONIC,
        pythonic.LFM2,
        gemma.GEMMA,
        gemma.GEMMA_4,
        harmony.HARMONY,
        xml_calls.QWEN3_CODER,
        xml_calls.GLM,
        xml_calls.MINIMAX_M2,
        xml_calls.DSML,
        xml_calls.DSML_V4,
    )
}


# The fallback for templates that know no tools teaches the hermes form, which also has the thinking blocks of `think`:
# so it is the answer for every template that is not told apart.
DEFAULT_DIALECT = "hermes"
