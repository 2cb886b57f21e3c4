"""Encodes named values between the judge and a driver. labs/kit/record.hpp is the other half and
has the table of types."""
import array
import struct

ARRAYS = {"I": "q", "D": "d", "F": "f"}


class Torn(Exception):
    """Bytes that are not a valid record."""


def floats(values):
    return array.array("f", values)


def _coded(name, value):
    if isinstance(value, bool):
        return "i", struct.pack("<q", value)
    if isinstance(value, int):
        return "i", struct.pack("<q", value)
    if isinstance(value, float):
        return "d", struct.pack("<d", value)
    if isinstance(value, str):
        return "s", value.encode()
    if isinstance(value, bytes):
        return "B", value
    if isinstance(value, array.array):
        code = {kind: code for code, kind in ARRAYS.items()}[value.typecode]
        return code, value.tobytes()
    if isinstance(value, (list, tuple)):  # as integers if all values are
        whole = all(isinstance(v, int) for v in value)
        return _coded(name, array.array("q" if whole else "d", value))
    raise TypeError(f"{name}: a {type(value).__name__} cannot be sent to a driver")


def encode(values):
    parts = []
    for name, value in values.items():
        code, raw = _coded(name, value)
        parts.append(f"{name} {code} {len(raw)}\n".encode() + raw + b"\n")
    return b"".join(parts)


def _value(code, raw):
    """Raises ValueError or struct.error if the bytes are not a value of this type."""
    if code in ARRAYS:
        return array.array(ARRAYS[code], raw)
    if code in "id":
        return struct.unpack("<q" if code == "i" else "<d", raw)[0]
    if code not in "sB":
        raise ValueError(code)
    return raw.decode(errors="replace") if code == "s" else raw


def decode(data):
    """Raises Torn for any invalid bytes, because they may come from a submission."""
    values, at = {}, 0
    while at < len(data):
        line = data.find(b"\n", at)
        try:
            name, code, digits = data[at:line].decode().split(" ")
            if line < 0 or len(code) != 1 or not (digits.isascii() and digits.isdigit()) or len(digits) > 12:
                raise ValueError
            raw = data[line + 1:line + 1 + int(digits)]
            if len(raw) != int(digits):
                raise ValueError
            values[name] = _value(code, raw)
        except (ValueError, struct.error):
            raise Torn(f"torn at byte {at}") from None
        at = line + 2 + len(raw)
    return values
