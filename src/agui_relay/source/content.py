"""The readable content of a tool result: text, or ordered AG-UI parts; media described, never embedded."""

from typing import Any

from ag_ui.core import AudioPart, ContentPart, DocumentPart, FileSource, ImagePart, TextPart, UrlSource, VideoPart

from agui_relay.source import media
from agui_relay.source.media import ContentMetadata
from agui_relay.source.plain import clean_text, tool_value
from agui_relay.source.reading import dump_text

__all__ = ["AUTHORED_INPUT_EVENT_NAMES", "ContentMetadata", "tool_result_content"]

AUTHORED_INPUT_EVENT_NAMES: frozenset[str] = frozenset({"a13n.input.user", "a13n.input.steering"})
"""The CUSTOM events that carry what a person wrote."""


def tool_result_content(value: object) -> str | list[ContentPart]:
    """Return what a client shows of a tool's result.

    A result with native content (as it is, or in a list) becomes ordered AG-UI parts; hidden content is left out. Any
    other result is text: a string as it is, else compact JSON with sorted keys. Bytes are described by their size. What
    has no JSON form (numbers that are not finite, cycles, arbitrary objects) is replaced by a marker; nothing raises.
    """
    values = value if isinstance(value, list | tuple) else [value]
    types = media.native_types()
    if not types or not any(isinstance(entry, types) for entry in values):
        return _text(value)
    return [part for entry in values if (part := _part(entry, types)) is not None]


def _part(value: Any, types: tuple[type, ...]) -> ContentPart | None:
    if isinstance(value, str):
        return TextPart(text=clean_text(str(value)))
    if not isinstance(value, types):
        return TextPart(text=_text(value))
    described = media.describe(value)
    if described is None or not described[1].display:
        return None
    content = described[0]
    if isinstance(content, str):
        return TextPart(text=clean_text(content))
    return _medium(content)


def _medium(content: dict[str, Any]) -> ContentPart:
    mime, url, file_id = content.get("media_type"), content.get("url"), content.get("file_id")
    mime = clean_text(mime) if isinstance(mime, str) else None
    source: UrlSource | FileSource
    if isinstance(url, str):
        source = UrlSource(value=clean_text(url), mime_type=mime)
    elif isinstance(file_id, str):
        provider = content.get("provider_name")
        name = clean_text(provider) if isinstance(provider, str) else None
        source = FileSource(value=clean_text(file_id), provider=name, mime_type=mime)
    else:
        return TextPart(text=_text(content))
    kind, mime = content.get("kind"), mime or ""
    if kind == "image-url" or mime.startswith("image/"):
        return ImagePart(source=source)
    if kind == "audio-url" or mime.startswith("audio/"):
        return AudioPart(source=source)
    if kind == "video-url" or mime.startswith("video/"):
        return VideoPart(source=source)
    return DocumentPart(source=source)


def _text(value: object) -> str:
    if isinstance(value, str):
        return clean_text(str.__str__(value))
    return dump_text(tool_value(value))
