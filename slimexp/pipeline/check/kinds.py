"""What kind of picture a file holds: its format, size, colours, frames, and how the camera was held."""

from __future__ import annotations

import dataclasses
import os

from slimexp.pipeline.images.formats import BadImage, identify
from slimexp.pipeline.images.jpeg_header import read_jpeg_header
from slimexp.pipeline.images.pillow_decode import open_image, orientation_of

__all__ = ["Kind", "expected_format", "kind_of"]

_EXTENSIONS = {
    **dict.fromkeys((".jpg", ".jpeg", ".jpe", ".jfif", ".mpo"), "JPEG"),
    **dict.fromkeys((".png", ".apng"), "PNG"),
    **dict.fromkeys((".bmp", ".dib"), "BMP"),
    **dict.fromkeys((".tif", ".tiff"), "TIFF"),
    **dict.fromkeys((".jp2", ".j2k", ".jpx", ".j2c"), "JPEG 2000"),
    **dict.fromkeys((".ppm", ".pgm", ".pbm", ".pnm"), "PNM"),
    ".gif": "GIF",
    ".webp": "WebP",
    ".avif": "AVIF",
}
_COLORS = {"1": "1 bit", "L": "grey", "LA": "grey", "P": "palette", "PA": "palette", "CMYK": "CMYK"}


@dataclasses.dataclass(frozen=True)
class Kind:
    """A picture as its header tells of it.

    Attributes:
        format: One of `slimexp.pipeline.images.formats.READABLE_FORMATS`.
        color: `colour`, `grey`, `1 bit`, `palette` or `CMYK`.
        height: In pixels, as stored.
        width: Likewise.
        orientation: By EXIF, 1 to 8.
        has_alpha: Whether there is transparency, which is left out.
        is_deep: Whether a channel has more than 8 bits, which become 8.
        is_animated: Whether there are several frames or pages, of which the first counts.
        is_progressive: Of a JPEG, whether it comes in scans.
    """

    format: str
    color: str
    height: int
    width: int
    orientation: int = 1
    has_alpha: bool = False
    is_deep: bool = False
    is_animated: bool = False
    is_progressive: bool = False

    @property
    def notes(self) -> list[str]:
        """What is unusual about it, in words that groups of pictures are counted under."""
        flags = {
            f"{self.color} colours" if self.color == "palette" else self.color: self.color != "colour",
            "with transparency (left out)": self.has_alpha,
            "16 bits a channel (brought to 8)": self.is_deep,
            "several frames or pages (the first counts)": self.is_animated,
            "progressive JPEG": self.is_progressive,
        }
        return [note for note, holds in flags.items() if holds]


def kind_of(contents: bytes) -> Kind | None:
    """Reads a picture's header; None if that cannot be read."""
    name = identify(contents)
    if name is None:
        return None
    if name == "JPEG":
        header = read_jpeg_header(contents)
        color = {1: "grey", 4: "CMYK"}.get(header.num_components, "colour")
        return Kind(name, color, header.height, header.width, header.orientation, is_progressive=header.is_progressive)
    try:
        with open_image(contents, name) as image:
            return Kind(
                name,
                _COLORS.get(image.mode, "grey" if image.mode.startswith(("I", "F")) else "colour"),
                image.height,
                image.width,
                orientation_of(image),
                has_alpha="A" in image.mode or "transparency" in image.info,
                is_deep=image.mode.startswith(("I", "F")) or (name == "PNG" and contents[24] == 16),
                is_animated=bool(getattr(image, "is_animated", False)),
            )
    except (BadImage, MemoryError):
        return None
    except Exception:  # Pillow's parsers raise many kinds on damaged files; what is wrong is for decoding to tell.
        return None


def expected_format(name: str) -> str | None:
    """Returns the format that a file name's ending promises; None if it promises none."""
    return _EXTENSIONS.get(os.path.splitext(name)[1].lower())
