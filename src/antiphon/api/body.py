"""A request's body, bounded before and after decompression."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import zstandard
from starlette.requests import Request

from antiphon.protocol.errors import RequestRefused

Decoder = Callable[[bytes, int], bytes]
"""Decompresses, to at most so many bytes; raises `_TooLarge` or `ValueError`."""


class _TooLarge(Exception):
    pass


async def read_body(request: Request, limit: int) -> bytes:
    """The decoded body.

    Raises `RequestRefused`: 413 above `limit` bytes, 415 for an unknown encoding, 400 for a damaged one.
    """
    decode = _decoder(request.headers.get("content-encoding", "identity"))
    try:
        raw = await _read(request, limit)
        return raw if decode is None else decode(raw, limit)
    except _TooLarge:
        raise RequestRefused(f"The body is larger than {limit} bytes.", code="request_too_large", status=413) from None
    except ValueError:
        raise RequestRefused("The body does not match its content-encoding.", code="invalid_body") from None


def _decoder(encoding: str) -> Decoder | None:
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return None
    if name not in _DECODERS:
        known = ", ".join(_DECODERS)
        raise RequestRefused(
            f"Unknown content-encoding; this server takes {known}.", code="unsupported_encoding", status=415
        )
    return _DECODERS[name]


async def _read(request: Request, limit: int) -> bytes:
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit:
        raise _TooLarge
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise _TooLarge
    return bytes(body)


def _gunzip(data: bytes, limit: int) -> bytes:
    decoder = zlib.decompressobj(wbits=31)
    try:
        out = decoder.decompress(data, limit + 1)
    except zlib.error as error:
        raise ValueError from error
    if len(out) > limit:
        raise _TooLarge
    if not decoder.eof or decoder.unused_data:
        raise ValueError
    return out


def _unzstd(data: bytes, limit: int) -> bytes:
    decoder = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
    out = bytearray()
    view = memoryview(data)
    try:
        # Small pieces in, so that a bomb is noticed before it has unfolded.
        for start in range(0, len(view), _ZSTD_PIECE):
            out += decoder.decompress(view[start : start + _ZSTD_PIECE])
            if len(out) > limit:
                raise _TooLarge
    except zstandard.ZstdError as error:
        raise ValueError from error
    if not decoder.eof or decoder.unused_data:
        raise ValueError
    return bytes(out)


_ZSTD_PIECE = 1024
"""Bytes. The smallest block has 4 and gives 128 KiB at most: a piece unfolds to 32 MiB at most, as much as a body."""
_DECODERS: dict[str, Decoder] = {"gzip": _gunzip, "zstd": _unzstd}
