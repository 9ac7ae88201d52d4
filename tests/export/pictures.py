"""Small pictures in every format, and every way to get one wrong."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
from PIL import Image

ADOBE = b"\xff\xee\x00\x0eAdobe\x00d\x00\x00\x00\x00\x00"


def smooth(height: int = 44, width: int = 60, seed: int = 0) -> Image.Image:
    """A picture that looks more like a photo than noise does."""
    noise = np.random.RandomState(seed).randint(0, 256, [6, 8, 3]).astype(np.uint8)
    return Image.fromarray(noise).resize((width, height))


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def orientation(value: int, *, big: bool = False, kind: int = 3) -> bytes:
    """An EXIF block that says how the camera was held, with an entry before it."""
    order = ">" if big else "<"
    entry = struct.pack(f"{order}HHI", 0x010F, 2, 4) + b"abc\0"
    number = struct.pack(f"{order}HH", value, 0) if kind == 3 else struct.pack(f"{order}I", value)
    entry += struct.pack(f"{order}HHI", 0x0112, kind, 1) + number
    head = (b"MM\0*" if big else b"II*\0") + struct.pack(f"{order}I", 8)
    return b"Exif\0\0" + head + struct.pack(f"{order}H", 2) + entry + b"\0\0\0\0"


def with_alpha(image: Image.Image) -> Image.Image:
    image = image.copy()
    alpha = np.random.RandomState(1).randint(0, 256, image.size[::-1]).astype(np.uint8)
    image.putalpha(Image.fromarray(alpha))
    return image


def deep_png() -> bytes:
    """16 bits a channel, which Pillow does not write in colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    values = np.random.RandomState(2).randint(0, 65536, [20, 30, 3]).astype(">u2")
    rows = b"".join(b"\0" + row.tobytes() for row in values)  # Each behind the number of its filter: none.
    header = struct.pack(">IIBBBBB", 30, 20, 16, 2, 0, 0, 0)
    data = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + data


def good_pictures() -> dict[str, bytes]:
    """Files that an export has to decode as evaluation does."""
    image = smooth()
    palette = image.convert("P")
    jpeg = encoded(image, "JPEG", quality=90)
    cmyk = encoded(image.convert("CMYK"), "JPEG", quality=90)
    return {
        "jpeg": jpeg,
        "jpeg progressive": encoded(image, "JPEG", progressive=True),
        "jpeg 4:4:4": encoded(image, "JPEG", subsampling=0),
        "jpeg grey": encoded(image.convert("L"), "JPEG"),
        "jpeg cmyk": cmyk,
        "jpeg cmyk without Adobe's marker": cmyk.replace(ADOBE, b""),
        **{f"jpeg turned {n}": encoded(image, "JPEG", exif=orientation(n)) for n in range(1, 9)},
        "jpeg turned, big endian": encoded(image, "JPEG", exif=orientation(6, big=True)),
        "jpeg turned, long": encoded(image, "JPEG", exif=orientation(8, kind=4)),
        "jpeg, odd orientation": encoded(image, "JPEG", exif=orientation(9)),
        "jpeg with bytes behind its end": jpeg + b"notes of a camera",
        "jpeg with bytes before a marker": jpeg[:20] + b"\0ab\xff\xff" + jpeg[20:],
        "jpeg large": encoded(smooth(700, 500), "JPEG"),
        "jpeg large turned": encoded(smooth(500, 701), "JPEG", exif=orientation(5)),
        "png": encoded(image, "PNG"),
        "png palette": encoded(palette, "PNG"),
        "png alpha": encoded(with_alpha(image), "PNG"),
        "png grey alpha": encoded(with_alpha(image).convert("LA"), "PNG"),
        "png one bit": encoded(image.convert("1"), "PNG"),
        "png 16 bits": deep_png(),
        "png turned": encoded(image, "PNG", exif=orientation(6)),
        "webp": encoded(image, "WEBP"),
        "webp lossless": encoded(image, "WEBP", lossless=True),
        "webp alpha": encoded(with_alpha(image), "WEBP"),
        "webp alpha lossless": encoded(with_alpha(image), "WEBP", lossless=True, exact=True),
        "webp animated": encoded(image, "WEBP", save_all=True, append_images=[image.rotate(90)]),
        "webp turned": encoded(image, "WEBP", exif=orientation(6)),
        "webp alpha turned": encoded(with_alpha(image), "WEBP", exif=orientation(3, big=True)),
        "gif": encoded(palette, "GIF"),
        "gif animated": encoded(palette, "GIF", save_all=True, append_images=[image.rotate(180).convert("P")]),
        "bmp": encoded(image, "BMP"),
        "bmp alpha": encoded(with_alpha(image), "BMP"),
        "bmp palette": encoded(palette, "BMP"),
        "bmp 16 colours": encoded(image.quantize(16), "BMP"),
        "bmp grey": encoded(image.convert("L"), "BMP"),
        "bmp one bit": encoded(image.convert("1"), "BMP"),
        "bmp odd width": encoded(smooth(13, 17), "BMP"),
        "one pixel": encoded(smooth(1, 1), "PNG"),
    }


def bad_pictures() -> dict[str, bytes]:
    """Files that an export has to refuse."""
    image = smooth(200, 300)
    jpeg = encoded(image, "JPEG")
    return {
        "empty": b"",
        "one byte": b"\xff",
        "start of a jpeg": jpeg[:3],
        "half a jpeg": jpeg[: len(jpeg) // 2],
        "text": b"no picture at all",
        "half a png": encoded(image, "PNG")[:600],
        "half a webp": encoded(image, "WEBP")[:200],
        "start of a webp": b"RIFF\x10\0\0\0WEBP",
        "webp without a picture": b"RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0" + bytes(10),
        "start of a bmp": b"BM",
        "half a bmp": encoded(image, "BMP")[:5000],
        "bmp of an odd kind": b"BM" + bytes(100),
        "gif without frames": b"GIF89a" + bytes(20),
        "tiff": encoded(image, "TIFF"),
    }
