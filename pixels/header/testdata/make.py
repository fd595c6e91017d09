"""Makes the images of this directory, and images.json with what Pillow says of each one.

Run it with Pillow 12.0 or later: python make.py
"""

from __future__ import annotations

import io
import json
import struct
import zlib
from pathlib import Path
from typing import Any, Dict, Tuple

from PIL import Image, ImageOps

HERE = Path(__file__).parent
XMP = b'<x:xmpmeta><rdf:Description tiff:Orientation="%d"/></x:xmpmeta>'


def picture(mode: str, size: Tuple[int, int]) -> Image.Image:
    """A gradient, so that a swap of the sides is visible."""
    image = Image.linear_gradient("L").resize(size)
    if mode in ("RGBA", "LA", "PA"):
        image = image.convert("RGB" if mode == "RGBA" else "L").convert(mode)
        image.putalpha(Image.linear_gradient("L").resize(size).rotate(180))
        return image
    return image.convert(mode)


def exif(orientation: int, big: bool = False, kind: str = "H") -> bytes:
    """EXIF data with an orientation between two other entries."""
    order, mark = (">", b"MM\x00*") if big else ("<", b"II*\x00")
    value = struct.pack(order + kind, orientation).ljust(4, b"\0")
    number = {"B": 1, "H": 3, "I": 4}[kind]
    entries = [struct.pack(order + "HHI", 0x010E, 2, 4) + b"ab\0\0"]
    entries += [struct.pack(order + "HHI", 0x0112, number, 1) + value]
    entries += [struct.pack(order + "HHI", 0x0128, 3, 1) + struct.pack(order + "H", 2).ljust(4, b"\0")]
    return mark + struct.pack(order + "I", 8) + struct.pack(order + "H", len(entries)) + b"".join(entries) + b"\0" * 4


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def segment(marker: int, content: bytes) -> bytes:
    return b"\xff" + bytes([marker]) + struct.pack(">H", len(content) + 2) + content


def made() -> Dict[str, bytes]:
    out: Dict[str, bytes] = {}
    rgb = picture("RGB", (37, 23))
    plain = encoded(rgb, "JPEG")
    out["plain.jpg"] = plain
    out["progressive.jpg"] = encoded(rgb, "JPEG", progressive=True)
    out["grey.jpg"] = encoded(picture("L", (8, 5)), "JPEG")
    out["cmyk.jpg"] = encoded(picture("CMYK", (20, 9)), "JPEG")
    out["one.jpg"] = encoded(picture("RGB", (1, 1)), "JPEG")
    out["restart.jpg"] = encoded(rgb, "JPEG", restart_marker_blocks=1)
    for n in range(10):
        out["exif-%d.jpg" % n] = plain[:2] + segment(0xE1, b"Exif\0\0" + exif(n)) + plain[2:]
    out["exif-big.jpg"] = plain[:2] + segment(0xE1, b"Exif\0\0" + exif(6, big=True)) + plain[2:]
    out["exif-long.jpg"] = plain[:2] + segment(0xE1, b"Exif\0\0" + exif(8, kind="I")) + plain[2:]
    out["exif-byte.jpg"] = plain[:2] + segment(0xE1, b"Exif\0\0" + exif(3, kind="B")) + plain[2:]
    parts = exif(5)
    out["exif-two-parts.jpg"] = (
        plain[:2] + segment(0xE1, b"Exif\0\0" + parts[:20]) + segment(0xE1, b"Exif\0\0" + parts[20:]) + plain[2:]
    )
    xmp = segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + XMP % 6)
    out["xmp.jpg"] = plain[:2] + xmp + plain[2:]
    out["xmp-and-exif.jpg"] = plain[:2] + xmp + segment(0xE1, b"Exif\0\0" + exif(3)) + plain[2:]
    out["profiles.jpg"] = plain[:2] + 3 * segment(0xE2, b"ICC_PROFILE\0" + bytes(65000)) + plain[2:]
    out["filled.jpg"] = plain[:2] + b"\xff\xff\xff" + plain[2:]  # any number of 0xff may stand before a marker
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"):
        name = mode.replace(";", "").lower()
        image = picture("L", (14, 9)).convert(mode) if mode == "I;16" else picture(mode, (14, 9))
        out["%s.png" % name] = encoded(image, "PNG")
    out["transparent.png"] = encoded(picture("P", (14, 9)), "PNG", transparency=3)
    grey = out["l.png"]
    header, rest = grey[:33], grey[33:]
    out["exif.png"] = encoded(rgb, "PNG", exif=exif(6))
    out["exif-last.png"] = grey[:-12] + chunk(b"eXIf", exif(8)) + grey[-12:]
    out["xmp.png"] = header + chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + XMP % 8) + rest
    for name, options in (("lossy", {}), ("lossless", {"lossless": True}), ("exif", {"exif": exif(6)})):
        out["%s.webp" % name] = encoded(rgb, "WEBP", **options)
        out["%s-alpha.webp" % name] = encoded(picture("RGBA", (37, 23)), "WEBP", **options)
    out["exif-marked.webp"] = encoded(rgb, "WEBP", exif=b"Exif\0\0" + exif(7))
    out["xmp.webp"] = encoded(rgb, "WEBP", xmp=XMP % 6)
    return out


def main() -> None:
    said = {}
    for name, content in made().items():
        (HERE / name).write_bytes(content)
        with Image.open(io.BytesIO(content)) as image:
            width, height = image.size
            oriented = ImageOps.exif_transpose(image)
            said[name] = {"format": image.format, "width": width, "height": height, "oriented": oriented.size}
            orientation = image.getexif().get(0x0112, 1)
            said[name]["orientation"] = orientation if orientation in range(1, 9) else 1
    (HERE / "images.json").write_text(json.dumps(said, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
