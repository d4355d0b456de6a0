"""Outputs through one dialect: cut in every way, as tokens, and through the grammar of what is wanted."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from antiphon.protocol.fragments import Arguments, Call, CallDone, Fragment, Reasoning, ReasoningDone
from antiphon.text.constraint import Grammars
from antiphon.text.dialects.dialect import Dialect
from antiphon.text.dialects.grammar import Wanted, output_grammar
from antiphon.text.dialects.machine import Parser
from tests.text.dialects.corpus import TOOLS, Case
from tests.text.vocabulary import EndingTokenizer
from tests.three_cuts import merged, three_cuts

# Longer outputs are not cut everywhere: as many splits as characters would take too long.
CUT_EVERYWHERE = 1000


def parser(
    dialect: Dialect, *, calls: bool = True, control: Collection[str] = (), reasoning_open: bool = False
) -> Parser:
    return dialect.parser(tools=TOOLS, calls=calls, control=control, reasoning_open=reasoning_open)


def parse(subject: Parser, pieces: Sequence[str]) -> list[Fragment]:
    fragments = [fragment for piece in pieces for fragment in subject.feed(piece)] + subject.finish()
    assert all(getattr(fragment, "text", "some") for fragment in fragments), "no fragment is empty"
    return merged(fragments)


def read(dialect: Dialect, case: Case) -> list[Fragment]:
    """What the dialect makes of an output, which is the same however it is cut."""

    def run(pieces: Sequence[str]) -> list[Fragment]:
        subject = parser(dialect, calls=case.calls, control=case.control, reasoning_open=case.reasoning_open)
        return parse(subject, pieces)

    if len(case.output) < CUT_EVERYWHERE:
        return three_cuts(run, case.output)
    whole = run([case.output])
    for pieces in (list(case.output), [case.output[:700], case.output[700:]], list(_pieces(case.output, 64))):
        assert run(pieces) == whole
    return whole


def check_beginnings(dialect: Dialect, output: str) -> None:
    """An output that ends at any character: it is read the same by the character, and its calls are in order."""
    for end in range(len(output)):
        whole = parse(parser(dialect), [output[:end]])
        assert parse(parser(dialect), list(output[:end])) == whole
        check_order(whole)


def check_order(fragments: Sequence[Fragment]) -> None:
    """Arguments and ends only within what they belong to; nothing else within a call."""
    last: type[Fragment] | None = None
    for fragment in fragments:
        match fragment:
            case ReasoningDone():
                assert last is Reasoning
            case Arguments():
                assert last is Call
            case CallDone():
                assert last is Arguments
            case _:
                assert last not in (Call, Arguments, Reasoning)
        last = type(fragment)


def tokens(dialect: Dialect, pieces: Sequence[str], control: Collection[str]) -> list[Fragment]:
    """What the dialect makes of pieces; those that begin with `^` are control tokens."""
    subject = parser(dialect, control=control)
    fragments: list[Fragment] = []
    for piece in pieces:
        fragments += subject.control(piece[1:]) if piece.startswith("^") else subject.feed(piece)
    return merged(fragments + subject.finish())


def let_through(dialect: Dialect, wanted: Wanted, pieces: Sequence[str], control: Sequence[str] = ()) -> str:
    """How much of an output the grammar lets through, and `$` if all of it and the output may end there."""
    tokenizer = EndingTokenizer(control)
    constraint = Grammars(tokenizer).constraint(output_grammar(dialect, wanted, tokenizer.control))
    passed = ""
    for piece in pieces:
        ids = tokenizer.encode(piece.removeprefix("^"), control=piece.startswith("^"))
        for place, token in enumerate(ids):
            if not constraint.accept(token):
                return passed + bytes(ids[:place]).decode(errors="replace")
        passed += piece
    return passed + ("$" if constraint.may_end else "")


def _pieces(text: str, size: int) -> Iterator[str]:
    for at in range(0, len(text), size):
        yield text[at : at + size]
